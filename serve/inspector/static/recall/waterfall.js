/** Where the time went: spans on one axis, the wait at the door first. Parts overlap; they are no sum. @module */
import { html } from "../vendor/ui.js";
import { ms } from "../format.js";

const W = 540, NAME = 170, ROW = 20;

/** Spans as a tree in the order of their beginnings: [{span, depth}]. */
export function tree(spans) {
  const below = new Map();
  for (const span of spans) { const list = below.get(span.parent) ?? []; list.push(span); below.set(span.parent, list); }
  const found = [], seen = new Set();
  const walk = (name, depth) => { if (seen.has(name)) return; seen.add(name); for (const span of (below.get(name) ?? []).sort((a, b) => a.start - b.start)) { found.push({ span, depth }); walk(span.name, depth + 1); } };
  walk(null, 0);
  return found;
}

/** The steps that the answer waited for: at each level what ended last, and what ended before that began. */
export function critical(spans) {
  const found = new Set();
  const walk = (parent) => {
    let end = parent.start + parent.seconds + 1e-9;
    const inner = spans.filter((s) => s.parent === parent.name && s !== parent).sort((a, b) => b.start + b.seconds - (a.start + a.seconds));
    for (const span of inner) if (span.start + span.seconds <= end + 1e-6) { found.add(span); end = span.start; walk(span); }
  };
  const root = spans.find((s) => s.parent === null);
  if (root) { found.add(root); walk(root); }
  return found;
}

export function Waterfall({ spans, usual }) {
  const rows = tree(spans), path = critical(spans), whole = spans.find((s) => s.parent === null)?.seconds ?? 1;
  const most = Math.max(whole, (usual?.p99_ms ?? 0) / 1000);
  const x = (t) => NAME + (t / most) * (W - NAME - 64);
  const H = rows.length * ROW + 24;
  return html`<svg viewBox=${`0 0 ${W} ${H}`} role="img" aria-label=${`Spans of a recall of ${ms(whole)}`}>
    ${usual?.p50_ms && [["p50", usual.p50_ms], ["p99", usual.p99_ms]].map(([label, v]) => html`<line class="ink" x1=${x(v / 1000)} x2=${x(v / 1000)} y1="12" y2=${H} stroke-dasharray="2 3" opacity=".6" /><text class="small dim" x=${x(v / 1000)} y="9" text-anchor=${label === "p99" ? "end" : "middle"}>${label}</text>`)}
    ${rows.map(({ span, depth }, i) => html`<g transform=${`translate(0 ${16 + i * ROW})`}><text class="small" x=${depth * 10} y="13">${span.name.replaceAll("_", " ")}</text><rect x=${x(span.start)} y="4" width=${Math.max(1.5, x(span.start + span.seconds) - x(span.start))} height="11" fill=${span.name === "admission" ? "var(--grey3)" : depth < 2 ? "var(--accent)" : "var(--grey2)"} stroke=${path.has(span) ? "var(--ink)" : "none"} stroke-width="1.4" /><text class="small dim n" x=${W} y="13" text-anchor="end">${ms(span.seconds)}</text></g>`)}</svg>`;
}

export const SpanTable = ({ spans }) => html`<table><thead><tr><th>Step</th><th>Inside</th><th class="num">Begins</th><th class="num">Takes</th></tr></thead><tbody>${tree(spans).map(({ span }) => html`<tr><td>${span.name}</td><td>${span.parent ?? ""}</td><td class="num">${ms(span.start)}</td><td class="num">${ms(span.seconds)}</td></tr>`)}</tbody></table>`;
