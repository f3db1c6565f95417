/** The four arms: letter, mark and dash beside the colour. @module */
import { html } from "../vendor/ui.js";
import { plain } from "../format.js";

export const ARMS = [
  { name: "semantic", letter: "S", label: "meaning", dash: "" },
  { name: "bm25", letter: "K", label: "words", dash: "6 3" },
  { name: "graph", letter: "G", label: "links", dash: "2 3" },
  { name: "temporal", letter: "T", label: "time", dash: "8 3 2 3" },
];
export const colour = (name) => `var(--${name})`;

/** The mark of an arm around a point. */
export function Mark({ arm, x = 0, y = 0, size = 4, hollow = false }) {
  const look = { fill: hollow ? "var(--page)" : colour(arm), stroke: colour(arm), "stroke-width": 1.5 };
  if (arm === "semantic") return html`<circle cx=${x} cy=${y} r=${size} ...${look} />`;
  if (arm === "bm25") return html`<rect x=${x - size} y=${y - size} width=${2 * size} height=${2 * size} ...${look} />`;
  const points = arm === "graph"
    ? [[0, -size - 0.5], [size + 0.5, size], [-size - 0.5, size]]
    : [[0, -size - 1], [size + 1, 0], [0, size + 1], [-size - 1, 0]];
  return html`<polygon points=${points.map(([a, b]) => `${x + a},${y + b}`).join(" ")} ...${look} />`;
}

export const Glyph = ({ arm, hollow }) => html`<svg width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true"><${Mark} arm=${arm} size=${3.6} hollow=${hollow} /></svg>`;

/** Which arms found it, at which rank. */
export const ArmRanks = ({ ranks }) => html`<span class="arms">${ARMS.map((arm, i) => html`
  <span class=${`arm ${ranks[i] ? "" : "none"}`} title=${ranks[i] ? `${arm.label}: rank ${plain(ranks[i])}` : `${arm.label}: not listed`}><${Glyph} arm=${arm.name} hollow=${!ranks[i]} />${ranks[i] ? html`<span>${arm.letter}${ranks[i]}</span>` : html`<span aria-hidden="true">–</span><span class="sr">${arm.label}: not listed</span>`}</span>`)}</span>`;
