/** When: memories over time, by what time, of what type; a span leads to its memories. @module */
import { html, useState } from "../vendor/ui.js";
import { bankPath, get, query } from "../api.js";
import { useLoad } from "../load.js";
import { dayOf, plural } from "../format.js";
import { go, href } from "../route.js";
import { Chip, Empty, Field, Link, Loaded, Pictured } from "../parts/common.js";
import { Histogram, HistogramTable, busiest, totals } from "../charts/histogram.js";
import { MemoryTable, filtersOf } from "./memories.js";

const FIELDS = [["event", "event, else mention"], ["occurred_start", "event"], ["mentioned_at", "mention"], ["created_at", "write"]];

/** A bank's histogram; where few memories lie far from all others, that of the others (`outside`: how many were left aside). */
export async function histogramOf(bank, asked, signal, whole = false) {
  const ask = (more) => get(bankPath(bank, `timeline${query({ ...asked, ...more })}`), { signal });
  const all = await ask({});
  const dense = whole || asked.from || asked.to ? null : busiest(all);
  return dense ? { ...(await ask({ from: dense.from, to: dense.to })), outside: dense.outside, undated: all.undated } : { ...all, outside: 0 };
}

/** What lies outside of the picture, and the way to it. */
export const Outside = ({ t, whole, all }) => (t.outside > 0 || whole) && html`<p class="small dim">${whole ? "" : `${plural(t.outside, "memory lies", "memories lie")} far from these. `}<button class="link small" onClick=${() => all(!whole)}>${whole ? "Only where most are" : "Show the whole time"}</button></p>`;

export function Timeline({ bank, params }) {
  const field = params.by ?? "event";
  const [whole, setWhole] = useState(false);
  const from = useLoad((signal) => histogramOf(bank, { field, from: params.from, to: params.to, types: params.type, tags: params.tags, buckets: 120 }, signal, whole), [bank, JSON.stringify(params), whole]);
  const set = (changes) => go(href(["b", bank, "timeline"], { ...params, ...changes }));
  const listed = params.from && params.to;
  const by = field === "event" ? "occurred_start" : field;
  const found = useLoad((signal) => (listed ? get(bankPath(bank, `memories/list${query({ ...filtersOf({ ...params, field: by }), limit: 50, count: "upto" })}`), { signal }) : Promise.resolve({ items: [] })), [bank, JSON.stringify(params)]);
  return html`<h1>Timeline</h1><div class="row">
    <${Field} label="Time of"><select value=${field} onChange=${(e) => set({ by: e.target.value })}>${FIELDS.map(([name, label]) => html`<option value=${name}>${label}</option>`)}</select><//>
    <${Field} label="Type"><select value=${params.type ?? ""} onChange=${(e) => set({ type: e.target.value })}><option value="">all</option><option>world</option><option>experience</option><option>observation</option></select><//>
    <${Field} label="Tag"><input value=${params.tags ?? ""} onChange=${(e) => set({ tags: e.target.value })} /><//></div>
    ${listed && html`<div class="chips"><${Chip} label="span" onRemove=${() => set({ from: undefined, to: undefined })}>${dayOf(params.from)} – ${dayOf(params.to)}<//></div>`}
    <${Loaded} from=${from} empty=${(t) => !t.buckets.length && html`<${Empty}>Nothing here has such a time.<//>`}>${(t) => html`<${Pictured} label="memories over time" json=${t}
      said=${`${plural(t.buckets.reduce((n, b) => n + totals(b), 0), "memory", "memories")} in spans of ${span(t.step_s)}${t.undated ? `, ${t.undated} without such a time` : ""}. Drag over a span to see into it.`}
      picture=${html`<${Histogram} timeline=${t} height=${200} onSpan=${(a, b) => set({ from: a, to: b })} />`} table=${html`<${HistogramTable} timeline=${t} />`} /><${Outside} t=${t} whole=${whole} all=${setWhole} />`}<//>
    ${listed && html`<h2>Memories of the span</h2><${Loaded} from=${found} empty=${(d) => !d.items.length && html`<${Empty}>None by this time. <${Link} to=${["b", bank, "memories"]} params=${{ from: params.from, to: params.to, field: "mentioned_at" }}>By mention<//><//>`}>${(d) => html`<${MemoryTable} bank=${bank} items=${d.items} />`}<//>`}`;
}

const span = (s) => { const days = s / 86_400; return days >= 365 ? `${Math.round(days / 365)} years` : days >= 1 ? plural(Math.round(days), "day") : s >= 3600 ? plural(s / 3600, "hour") : plural(s / 60, "minute"); };
