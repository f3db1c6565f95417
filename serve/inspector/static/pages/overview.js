/** What a bank holds. @module */
import { html, useState } from "../vendor/ui.js";
import { bankPath, get } from "../api.js";
import { useLoad } from "../load.js";
import { count, dayOf, plain, plural } from "../format.js";
import { go, href } from "../route.js";
import { Empty, Link, Loaded, Pictured } from "../parts/common.js";
import { Name } from "../parts/text.js";
import { Histogram, HistogramTable } from "../charts/histogram.js";
import { Outside, histogramOf } from "./timeline.js";

export function Overview({ bank }) {
  const from = useLoad((signal) => get(bankPath(bank, "overview"), { signal }), [bank]);
  const [whole, setWhole] = useState(false);
  const times = useLoad((signal) => histogramOf(bank, { buckets: 100 }, signal, whole), [bank, whole]);
  return html`<h1><${Name} value=${bank} /></h1>
  <${Loaded} from=${from} empty=${(o) => !o.memories && !o.documents && html`<${Empty}><p>This bank holds no memories yet.</p><p>What is retained appears here. Work under way is on <${Link} to=${["b", bank, "operations"]}>Operations<//>.</p><//>`}>
    ${(o) => html`<p class="dim">${said(o)}</p><dl class="facts">
      <div><dt>Memories</dt><dd>${plain(o.memories)}<small>${Object.entries(o.by_type).filter(([, n]) => n).map(([t, n]) => `${plain(n)} ${t}`).join(", ")}</small></dd></div>
      <div><dt>Entities</dt><dd>${plain(o.entities)}</dd></div><div><dt>Documents</dt><dd>${count(o.documents)}</dd></div>
      <div><dt>Invalidated</dt><dd>${count(o.invalidated)}</dd></div>
      <div><dt>Work</dt><dd>${plain(o.running)}<small><${Link} to=${["b", bank, "operations"]}>${o.failed ? `${count(o.failed)} failed` : "running or waiting"}<//></small></dd></div></dl>
      <${Matches} o=${o} bank=${bank} />
      <${Loaded} from=${times} rows=${2} empty=${(t) => !t.buckets.length && html`<${Empty}>No memory has a date.<//>`}>${(t) => html`<${Pictured} label="memories over time" json=${t}
        said="By event, else mention. Drag over the bars for the memories of a span."
        picture=${html`<${Histogram} timeline=${t} onSpan=${(a, b) => go(href(["b", bank, "memories"], { field: "occurred_start", from: a, to: b }))} />`} table=${html`<${HistogramTable} timeline=${t} />`} /><${Outside} t=${t} whole=${whole} all=${setWhole} />`}<//>
      <div class="cols"><section><h3>Top tags</h3>${o.tags.length ? html`<${Bars} rows=${o.tags.map(([tag, n]) => ({ name: tag, n, to: href(["b", bank, "memories"], { tags: tag }) }))} />` : html`<${Empty}>No memory has a tag.<//>`}</section>
      <section><h3>Top entities</h3>${o.top_entities.length ? html`<${Bars} rows=${o.top_entities.map((e) => ({ name: e.name, n: e.mentions, to: href(["b", bank, "entities"], { e: e.id }) }))} />` : html`<${Empty}>No memory mentions an entity.<//>`}</section></div>`}
  <//>`;
}

const said = (o) => `${plural(o.memories, "memory", "memories")}${o.first ? ` from ${dayOf(o.first)} to ${dayOf(o.last)}` : ""}, ${plural(o.entities, "entity", "entities")}; version ${plain(o.version)}.`;

function Matches({ o, bank }) {
  const off = [o.matches_server.vectors === false && html`Its vectors were made by <span class="mono">${o.vector_set}</span>, not by this server's model: recalls go without the semantic arm until <code>fourfold reembed</code> is done.`,
    o.matches_server.keyword === false && html`Its words were analysed otherwise than this server does: recalls use the old index until <code>fourfold reindex</code> is done.`].filter(Boolean);
  return off.length ? html`<div class="note warn">${off.map((p) => html`<p>${p}</p>`)}</div>` : html`<p class="small dim">Vectors <span class="mono">${o.vector_set || "none yet"}</span>${o.matches_server.vectors === null ? "" : ", as this server makes them"}.</p>`;
}

const Bars = ({ rows }) => { const most = Math.max(1, ...rows.map((r) => r.n)); return html`<table><tbody>${rows.map((r) => html`<tr><td style=${{ width: "45%" }}><a href=${r.to}><${Name} value=${r.name} /></a></td><td aria-hidden="true"><svg width="100%" height="12"><rect width=${`${(100 * r.n) / most}%`} height="12" fill="var(--accent)" opacity=".55" /></svg></td><td class="num" style=${{ width: "56px" }}>${plain(r.n)}</td></tr>`)}</tbody></table>`; };
