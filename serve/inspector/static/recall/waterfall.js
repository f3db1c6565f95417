/** Where the time went: spans on one axis, the wait for admission first. Parts overlap; they are no sum. @module */
import { html } from "../vendor/ui.js";
import { ms } from "../format.js";
import { flat } from "../parts/text.js";
import { letters, useWidth } from "../parts/width.js";

const VALUE = 60, ROW = 20;

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

/** Rows of a picture: steps of one name that lie in one step share a row, whatever ran how often. */
function rowsOf(spans) {
  const rows = new Map();
  for (const { span, depth } of tree(spans)) {
    const name = `${span.parent} ${span.name}`;
    const row = rows.get(name) ?? { name: span.name, depth, spans: [] };
    row.spans.push(span);
    rows.set(name, row);
  }
  return [...rows.values()];
}

export function Waterfall({ spans, usual }) {
  const [box, W] = useWidth(480), NAME = W < 420 ? 128 : 180;
  const rows = rowsOf(spans), path = critical(spans), whole = spans.find((s) => s.parent === null)?.seconds ?? 1;
  const most = Math.max(whole, (usual?.p99_ms ?? 0) / 1000);
  const x = (t) => NAME + (t / most) * (W - NAME - VALUE);
  const H = rows.length * ROW + 24;
  const longest = (row) => Math.max(...row.spans.map((s) => s.start + s.seconds)) - Math.min(...row.spans.map((s) => s.start));
  return html`<div ref=${box}><svg width=${W} height=${H} viewBox=${`0 0 ${W} ${H}`} role="img" aria-label=${`Spans of a recall of ${ms(whole)}`}>
    ${usual?.p50_ms && [["p50", usual.p50_ms], ["p99", usual.p99_ms]].map(([label, v], i) => html`<line class="ink" x1=${x(v / 1000)} x2=${x(v / 1000)} y1="12" y2=${H} stroke-dasharray="2 3" opacity=".6" /><text class="small dim" x=${x(v / 1000) + (i ? 3 : -3)} y="9" text-anchor=${i && x(v / 1000) < W - 40 ? "start" : "end"}>${label}</text>`)}
    ${rows.map((row, i) => html`<g transform=${`translate(0 ${16 + i * ROW})`}><text class="small" x=${row.depth * 10} y="13">${flat(row.name.replaceAll("_", " "), letters(NAME - row.depth * 10))}${row.spans.length > 1 && html`<tspan class="dim"> ×${row.spans.length}</tspan>`}</text>
      ${row.spans.map((span, n) => { const tall = 11 / row.spans.length; return html`<rect x=${x(span.start)} y=${4 + n * tall} width=${Math.max(1.5, x(span.start + span.seconds) - x(span.start))} height=${Math.max(2, tall - (row.spans.length > 1 ? 1 : 0))} fill=${span.name === "admission" ? "var(--grey3)" : row.depth < 2 ? "var(--accent)" : "var(--grey2)"} stroke=${path.has(span) ? "var(--ink)" : "none"} stroke-width=${row.spans.length > 1 ? 0.8 : 1.4} />`; })}
      <text class="small dim n" x=${W} y="13" text-anchor="end">${ms(longest(row))}</text></g>`)}</svg>${usual?.p50_ms && html`<p class="small dim">Dotted: half and 99 of 100 of this tenant’s recalls in this process take ${usual.p50_ms} and ${usual.p99_ms} ms.</p>`}</div>`;
}

export const SpanTable = ({ spans }) => html`<table><thead><tr><th>Step</th><th>Inside</th><th class="num">Begins</th><th class="num">Takes</th></tr></thead><tbody>${tree(spans).map(({ span }) => html`<tr><td>${span.name}</td><td>${span.parent ?? ""}</td><td class="num">${ms(span.start)}</td><td class="num">${ms(span.seconds)}</td></tr>`)}</tbody></table>`;
