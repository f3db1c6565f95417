/** The score strip: every part of a score, and that they add up. @module */
import { html } from "../vendor/ui.js";
import { exact, score, signed } from "../format.js";
import { Name } from "../parts/text.js";
import { flat } from "../parts/text.js";
import { ordered } from "./model.js";

/** What each part means, and how it is drawn. */
export const PARTS = {
  meaning: ["meaning", "var(--semantic)", "how alike the vectors are, in deviations of the bank"],
  words: ["words", "var(--bm25)", "BM25 as a share of the best match"],
  document: ["document", "var(--grey1)", "the best score in the same document"],
  neighbours: ["neighbours", "var(--grey2)", "what stands before and after it"],
  name: ["name", "var(--grey3)", "the question names what it is about"],
  length: ["length", "var(--grey2)", "short texts say little"],
  asking: ["asking", "var(--grey1)", "a question, or the answer to one"],
  time: ["time", "var(--temporal)", "touches the window of the question"],
  validity: ["validity", "var(--temporal)", "does not hold at the time that is meant"],
  links: ["links", "var(--graph)", "what the walk along links handed on"],
  best: ["best", "var(--ink)", "the score of the best candidate, taken off"],
  base: ["base", "var(--ink)", "the score before signals"],
  recency: ["recency", "var(--grey1)", "how old it is"],
  proof: ["proof", "var(--grey2)", "how often it was said"],
  boosts: ["boosts", "var(--accent)", "arms that the operator prefers"],
  place: ["place", "var(--graph)", "lifted behind what leads to it, or as the first of an arm"],
};
const known = (name) => PARTS[name] ?? [name, "var(--grey2)", ""];
export const FAULT = 1e-6;

/** Do the named parts add up to the whole? */
export const off = (parts, whole) => Math.abs(Object.values(parts).reduce((a, b) => a + b, 0) - whole);

/** One line: positive parts to the right of the zero, negative ones to the left. */
export function Strip({ row, most, width = 200 }) {
  const parts = row.parts ?? row.steps;
  const entries = Object.entries(parts);
  const low = Math.max(0, ...[...most.lows]), high = most.high;
  const scale = width / Math.max(1e-9, low + high);
  let right = low * scale, left = low * scale;
  return html`<svg width=${width} height="8" viewBox=${`0 0 ${width} 8`} aria-hidden="true" preserveAspectRatio="none">
    <line class="axis" x1=${low * scale} x2=${low * scale} y1="0" y2="8" />
    ${entries.map(([name, value]) => { const w = Math.abs(value) * scale; let x; if (value >= 0) { x = right; right += w; } else { left -= w; x = left; } return html`<rect x=${x} y="1" width=${Math.max(0, w - 0.5)} height="6" fill=${known(name)[1]} />`; })}</svg>`;
}

export function extent(rows) {
  const sums = rows.map((row) => { const parts = Object.values(row.parts ?? row.steps); return [parts.filter((v) => v < 0).reduce((a, b) => a - b, 0), parts.filter((v) => v > 0).reduce((a, b) => a + b, 0)]; });
  return { lows: sums.map(([l]) => l), high: Math.max(1e-9, ...sums.map(([, h]) => h)) };
}

/** Parts as a staircase: each begins where the one before ended. */
function Stairs({ parts, total, label, unit }) {
  const entries = Object.entries(parts);
  const ends = []; let at = 0;
  for (const [, value] of entries) { ends.push([at, at + value]); at += value; }
  const low = Math.min(0, total, ...ends.flat()), high = Math.max(0, total, ...ends.flat());
  const x = (v) => (100 * (v - low)) / Math.max(1e-9, high - low);
  const wrong = off(parts, total);
  return html`<table class="parts"><caption class="sr">${label}</caption><tbody>
    ${entries.map(([name, value], i) => html`<tr title=${known(name)[2]}><td>${known(name)[0]}<div class="small dim">${known(name)[2]}</div></td><td class="bar"><svg width="100%" height="14" aria-hidden="true"><line class="axis" x1=${`${x(0)}%`} x2=${`${x(0)}%`} y1="0" y2="14" /><rect x=${`${Math.min(x(ends[i][0]), x(ends[i][1]))}%`} width=${`${Math.max(0.4, Math.abs(x(ends[i][1]) - x(ends[i][0])))}%`} y="2" height="10" fill=${known(name)[1]} /></svg></td><td class="num" title=${exact(value)}>${i ? signed(value) : score(value)}</td></tr>`)}
    <tr><td><strong>${label}</strong></td><td class="bar"><svg width="100%" height="14" aria-hidden="true"><line class="axis" x1=${`${x(0)}%`} x2=${`${x(0)}%`} y1="0" y2="14" /><rect x=${`${Math.min(x(0), x(total))}%`} width=${`${Math.max(0.4, Math.abs(x(total) - x(0)))}%`} y="2" height="10" fill="none" stroke="var(--ink)" /></svg></td><td class="num" title=${exact(total)}><strong>${score(total)}</strong></td></tr></tbody></table>
    <p class="small dim">${wrong > FAULT ? html`<span class="badge bad">fault</span> the parts are ${exact(wrong)} off.` : html`The parts add up to <span class="mono" data-total=${total}>${exact(total)}</span>${unit ? ` ${unit}` : ""}.`}</p>`;
}

export function Score({ model, m, choose }) {
  const row = model.rows.get(m), { formula } = model.explained;
  if (!row) {
    const left = model.left.get(m);
    return html`<p class="empty">It has no final score: ${left ? "it was cut before it was scored." : "no arm listed it."} <button class="link" onClick=${() => choose({ v: "why" })}>Why not?</button></p>`;
  }
  const fused = !formula.reranked && formula.ordered_by === "fused" && row.parts;
  const arms = model.armRanks.get(m) ?? [];
  return html`<div>
    ${fused && html`<h3>Fused score</h3><${Stairs} parts=${row.parts} total=${row.score} label="score" /><p class="small">base = e<sup>score</sup> = <span class="mono">${exact(row.base)}</span></p>`}
    <h3>${formula.reranked ? html`Score of <span class="mono">${formula.ordered_by}</span>` : `Final score, from the ${ordered(formula)}`}</h3>
    ${row.raw !== null && html`<p class="small dim">raw ${exact(row.raw)}, on the scale 0 to 1: ${exact(row.base)}</p>`}
    <${Stairs} parts=${row.steps} total=${row.final} label="final" />
    ${row.behind !== null && html`<p class="note">Placed behind <button class="link" onClick=${() => choose({ m: row.behind })}>${flat(model.memories[row.behind].text, 60)}</button>, whatever it scores by itself.</p>`}
    <p class="small dim">Signals: recency ${score(row.recency)}, time ${score(row.time)}, proof ${score(row.proof)}; ½ changes nothing, weights ${formula.recency}, ${formula.time}, ${formula.proof}. ${arms.length ? `Ranks: meaning ${arms[0] || "–"}, words ${arms[1] || "–"}, links ${arms[2] || "–"}, time ${arms[3] || "–"}.` : ""}</p></div>`;
}
