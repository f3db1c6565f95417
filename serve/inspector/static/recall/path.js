/** How links led to a memory: layers by hop. @module */
import { html } from "../vendor/ui.js";
import { plural, score } from "../format.js";
import { flat } from "../parts/text.js";
import { chain } from "./model.js";

const NODES = 40, COL = 250, ROW = 52, TOP = 44, TEXT = 30;

export function pathSaid(model, m) {
  const steps = m === null || m === undefined ? [] : chain(model, m);
  if (steps.length < 2) return m === null || m === undefined ? "The paths of what links found." : model.armRanks.get(m)?.[2] ? "The walk began here: no link was needed." : "No link led here.";
  return `${plural(steps.length - 1, "hop")}: ${steps.slice(1).map((s) => `${s.link}${s.via ? ` (${flat(s.via, 30)})` : ""}`).join(", then ")}.`;
}

/** Of one memory its chain; without one all served paths. */
export function Paths({ model, m, choose }) {
  const wanted = m !== null && m !== undefined && model.path.has(m) ? [m] : model.served.filter((s) => model.path.has(s));
  const nodes = new Map(), edges = new Map();
  for (const item of wanted) {
    if (nodes.size >= NODES) break;
    chain(model, item).forEach((step, hop) => { nodes.set(step.m, Math.max(nodes.get(step.m) ?? 0, hop)); if (step.from !== undefined && hop) edges.set(`${step.from}>${step.m}`, step); });
  }
  if (!edges.size) return html`<p class="empty">Words, vectors or dates found all of what is served: no memory was reached by a link alone.</p>`;
  const columns = []; for (const [item, hop] of nodes) (columns[hop] ??= []).push(item);
  const layer = new Map(); columns.forEach((column, hop) => column?.forEach((item, i) => layer.set(item, [hop, i])));
  const H = Math.max(...columns.map((c) => c?.length ?? 0)) * ROW + TOP - 8, W = columns.length * COL;
  const at = (item) => { const [hop, i] = layer.get(item); return [hop * COL + 6, TOP + i * ROW]; };
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Paths"><svg width=${W} height=${H} viewBox=${`0 0 ${W} ${H}`} role="group" aria-label="Paths by hop" style=${{ maxWidth: "none" }}>
    ${columns.map((_, hop) => html`<text class="small dim" x=${hop * COL + 6} y="12">${hop ? `hop ${hop}` : "seed"}</text>`)}
    ${[...edges.values()].map((e) => { const [x1, y1] = at(e.from), [x2, y2] = at(e.m); const label = `${e.link}${e.via ? ` · ${flat(e.via, 18)}` : ""}${e.evidence ? ` ${score(e.evidence)}` : ""}`; return html`<g><path d=${`M${x1 + 190} ${y1}C${x1 + 220} ${y1} ${x2 - 30} ${y2} ${x2 - 2} ${y2}`} fill="none" stroke="var(--graph)" stroke-width="1.5" stroke-dasharray="2 3" /><text class="small dim" x=${x2} y=${y2 - 14}>${label}</text></g>`; })}
    ${[...nodes.keys()].map((item) => { const [x, y] = at(item); const chosen = item === m; return html`<g class="link" tabindex="0" role="button" aria-label=${flat(model.memories[item].text, 80)} aria-pressed=${chosen} onClick=${() => choose({ m: item })} onKeyDown=${(e) => e.key === "Enter" && choose({ m: item })}><title>${flat(model.memories[item].text, 160)}</title><rect x=${x - 4} y=${y - 11} width="196" height="22" rx="3" fill=${chosen ? "var(--mark)" : "var(--page)"} stroke=${chosen ? "var(--accent)" : "var(--line)"} /><text class="small" x=${x + 4} y=${y + 4}>${flat(model.memories[item].text, TEXT)}</text></g>`; })}
  </svg></div>`;
}

export const PathTable = ({ model, m, choose }) => html`<table><thead><tr><th>Hop</th><th>Memory</th><th>Link</th><th>Through</th><th class="num">Evidence</th></tr></thead><tbody>${(m !== null && m !== undefined && model.path.has(m) ? chain(model, m) : model.explained.paths.filter((p) => model.servedRank.has(p.m)).slice(0, NODES)).map((p, i) => html`<tr><td>${p.hop ?? (i ? "" : "seed")}</td><td style=${{ minWidth: "160px" }}><button class="quiet" style=${{ textAlign: "start" }} onClick=${() => choose({ m: p.m })}>${flat(model.memories[p.m].text, 80)}</button></td><td>${p.link ?? ""}</td><td>${flat(p.via ?? "", 40)}</td><td class="num">${score(p.evidence)}</td></tr>`)}</tbody></table>`;
