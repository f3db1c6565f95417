/** Bars over time, by type of memory; a brush chooses a span. @module */
import { html, useRef, useState } from "../vendor/ui.js";
import { dayOf, plain, plural, utc } from "../format.js";
import { useWidth } from "../parts/width.js";

const TYPES = ["world", "experience", "observation"];
const FILL = { world: "var(--accent)", experience: "var(--bm25)", observation: "var(--graph)" };
const H = 148, LEFT = 40, BOTTOM = 20;

export const totals = (bucket) => TYPES.reduce((sum, type) => sum + bucket[type], 0);

const DENSE = 0.95, NARROW = 0.25;

/** The shortest run of buckets with nearly all memories, where it is a small part of the time: {from, to, outside}; else null. */
export function busiest({ buckets, step_s }) {
  const counts = buckets.map(totals), all = counts.reduce((a, b) => a + b, 0);
  if (buckets.length < 8 || !all) return null;
  let best = null, inside = 0, first = 0;
  for (let last = 0; last < counts.length; last += 1) {
    inside += counts[last];
    while (inside - counts[first] >= DENSE * all) { inside -= counts[first]; first += 1; }
    if (inside >= DENSE * all && (best === null || last - first < best.last - best.first)) best = { first, last, outside: all - inside };
  }
  if (best.last - best.first + 1 > NARROW * buckets.length || !best.outside) return null;
  const to = buckets[best.last + 1]?.time ?? new Date(new Date(buckets[best.last].time).getTime() + step_s * 1000).toISOString();
  return { from: buckets[best.first].time, to, outside: best.outside };
}

export function Histogram({ timeline, onSpan, height = H }) {
  const svg = useRef(null);
  const [box, W] = useWidth(720);
  const [brush, setBrush] = useState(null);
  const [at, setAt] = useState(null);
  const buckets = timeline.buckets;
  const most = Math.max(1, ...buckets.map(totals));
  const width = (W - LEFT) / Math.max(1, buckets.length);
  const y = (n) => (height - BOTTOM) * (1 - n / most) + 4;
  const bucketAt = (event) => {
    const x = event.clientX - svg.current.getBoundingClientRect().left;
    return Math.max(0, Math.min(buckets.length - 1, Math.floor((x - LEFT) / width)));
  };
  const end = (i) => buckets[i + 1]?.time ?? new Date(new Date(buckets[i].time).getTime() + timeline.step_s * 1000).toISOString();
  const choose = (a, b) => onSpan?.(buckets[Math.min(a, b)].time, end(Math.max(a, b)));
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) { event.preventDefault(); setAt(Math.max(0, Math.min(buckets.length - 1, (at ?? -1) + step))); }
    if (event.key === "Enter" && at !== null) choose(at, at);
  };
  const ticks = W > 320 && buckets.length > 2 ? [0, Math.floor(buckets.length / 2), buckets.length - 1] : buckets.length > 1 ? [0, null, buckets.length - 1] : [0];
  const hovered = at === null ? null : buckets[at];
  return html`<div ref=${box}><svg ref=${svg} width=${W} height=${height + 4} viewBox=${`0 0 ${W} ${height + 4}`} role="group" tabindex="0" aria-label="Memories over time: arrow keys go through the bars" onKeyDown=${move}
      onPointerMove=${(e) => { const i = bucketAt(e); setAt(i); if (brush) setBrush([brush[0], i]); }} onPointerLeave=${() => { setAt(null); setBrush(null); }}
      onPointerDown=${(e) => onSpan && setBrush([bucketAt(e), bucketAt(e)])} onPointerUp=${() => { if (brush) { choose(...brush); setBrush(null); } }}>
    <line class="axis" x1=${LEFT} x2=${W} y1=${height - BOTTOM + 4} y2=${height - BOTTOM + 4} />
    <text class="dim small n" x=${LEFT - 6} y=${12} text-anchor="end">${plain(most)}</text><text class="dim small n" x=${LEFT - 6} y=${height - BOTTOM + 4} text-anchor="end">0</text>
    ${brush && html`<rect x=${LEFT + Math.min(...brush) * width} y="0" width=${(Math.abs(brush[1] - brush[0]) + 1) * width} height=${height - BOTTOM + 4} fill="var(--mark)" />`}
    ${buckets.map((bucket, i) => { let below = 0; return TYPES.map((type) => { const n = bucket[type]; if (!n) return null; const top = y(below + n), bottom = y(below); below += n;
      return html`<rect x=${LEFT + i * width + (width > 3 ? 0.5 : 0)} width=${Math.max(1, width - (width > 3 ? 1 : 0))} y=${top} height=${Math.max(1, bottom - top)} fill=${FILL[type]} opacity=${at === null || at === i ? 1 : 0.75} />`; }); })}
    ${ticks.map((i, n) => i !== null && buckets[i] && html`<text class="dim small" x=${n === 0 ? LEFT : n === 2 ? W : LEFT + i * width} text-anchor=${["start", "middle", "end"][n]} y=${height}>${dayOf(buckets[i].time)}</text>`)}
  </svg><p class="small dim" aria-live="polite">${hovered ? html`${dayOf(hovered.time)} – ${dayOf(end(at))}: ${plural(totals(hovered), "memory", "memories")}${TYPES.filter((t) => hovered[t]).map((t) => `, ${hovered[t]} ${t}`)}`
    : html`${TYPES.filter((t) => buckets.some((b) => b[t])).map((t) => html`<span class="nowrap"><svg width="10" height="10" style=${{ display: "inline-block" }} aria-hidden="true"><rect width="10" height="10" fill=${FILL[t]} /></svg> ${t} </span> `)}${timeline.undated ? `${plain(timeline.undated)} without a date` : ""}`}</p></div>`;
}

export const HistogramTable = ({ timeline }) => html`<table><thead><tr><th>From (UTC)</th>${TYPES.map((t) => html`<th class="num">${t}</th>`)}</tr></thead><tbody>${
  timeline.buckets.filter(totals).map((b) => html`<tr><td class="nowrap">${utc(b.time).slice(0, 16)}</td>${TYPES.map((t) => html`<td class="num">${plain(b[t])}</td>`)}</tr>`)}</tbody></table>`;
