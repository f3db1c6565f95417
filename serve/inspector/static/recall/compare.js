/** Two recalls side by side: what came, went and moved. @module */
import { html, useState } from "../vendor/ui.js";
import { ask, bankPath } from "../api.js";
import { useLoad } from "../load.js";
import { ms, plain } from "../format.js";
import { go, href, pack, unpack } from "../route.js";
import { useKeys } from "../keys.js";
import { Chip, Empty, Field, Link, Loaded, Pictured } from "../parts/common.js";
import { flat } from "../parts/text.js";
import { letters, useWidth } from "../parts/width.js";
import { changeSaid } from "./ladder.js";
import { changed, differences, index } from "./model.js";
import { Request, trimmed } from "./request.js";

const PRESETS = [["budget high", { budget: "high" }], ["reranker off", { settings: { enable_reranking: false } }], ["words off", { settings: { enable_text_search: false } }], ["links off", { settings: { enable_graph_retrieval: false } }],
  ["boost links", { settings: { recall_strategy_boosts: "graph:high" } }], ["convex fusion", { settings: { fusion: "convex" } }], ["no recency", { settings: { recency_decay_function: "none" } }]];
const FIRST = 20, STEP = 24;

export function Compare({ bank, params }) {
  const a = unpack(params.a) ?? {}, b = unpack(params.b) ?? {};
  const query = a.query ?? b.query ?? "";
  const [editing, setEditing] = useState(null);
  const one = { ...a, query: a.query ?? query }, other = { ...b, query: b.query ?? query };
  const set = (x, y) => go(href(["b", bank, "compare"], { a: pack(trimmed(x)), b: pack(trimmed(y)) }));
  useKeys({ Escape: () => history.back() });
  const from = useLoad(async (signal) => {
    if (!query.trim()) return null;
    const explain = (body) => ask("POST", bankPath(bank, "memories/recall/explain"), { body: { ...trimmed(body), lists: 0 }, signal, again: true });
    const first = await explain(one);
    return [first, await explain(other)];  // one after the other: two at once are the whole allowance
  }, [bank, params.a, params.b]);
  const diffs = differences(trimmed(one), trimmed(other));
  return html`<h1>Compare</h1><div class="row"><div class="grow"><${Field} label="Question"><input data-find="" dir="auto" value=${query} onChange=${(e) => set({ ...one, query: e.target.value }, { ...other, query: e.target.value })} /><//></div></div>
    <div class="chips">${diffs.length ? diffs.map(([name, x, y]) => html`<${Chip}>${name}: ${flat(x === undefined ? "default" : changeSaid({ [name]: x }).replace(`${name} = `, ""), 40)} → <strong>${flat(y === undefined ? "default" : changeSaid({ [name]: y }).replace(`${name} = `, ""), 40)}</strong><//>`) : html`<span class="dim">Both requests are the same: change the second.</span>`}</div>
    <div class="row" style=${{ margin: "8px 0" }}>${PRESETS.map(([label, change]) => html`<button onClick=${() => set(one, changed(one, change))}>${label}</button>`)}
      <label class="row"><span class="small dim">as of</span><input style=${{ width: "110px" }} placeholder="2024-10-31" onChange=${(e) => set(one, changed(one, { as_of: e.target.value || null }))} /></label>
      <button aria-expanded=${editing !== null} onClick=${() => setEditing(editing === null ? other : null)}>Edit the second</button></div>
    ${editing !== null && html`<div style=${{ maxWidth: "420px" }}><${Request} request=${editing} change=${setEditing} run=${() => { set(one, editing); setEditing(null); }} /></div>`}
    <${Loaded} from=${from} rows=${8} empty=${(d) => (d === null ? html`<${Empty}>Ask a question: it is answered twice.<//>` : null)}>${(d) => html`<${Both} d=${d} bank=${bank} one=${one} other=${other} />`}<//>`;
}

function Both({ d, bank, one, other }) {
  const [x, y] = d.map(index);
  const ids = (model) => model.served.map((m) => model.memories[m].id);
  const [left, right] = [ids(x), ids(y)];
  const longest = Math.max(left.length, right.length);
  const overlap = (k) => { const r = new Set(right.slice(0, k)); return `${left.slice(0, k).filter((i) => r.has(i)).length} of ${k < longest ? `the first ${k}` : `all ${longest}`}`; };
  const overlaps = [...[5, 10].filter((k) => k < longest), longest].map(overlap).join(", ");
  const root = (e) => e.spans.find((s) => s.parent === null)?.seconds ?? 0;
  const fresh = right.filter((i) => !left.includes(i)), gone = left.filter((i) => !right.includes(i));
  const text = (id) => { const model = x.place.has(id) ? x : y; return model.memories[model.place.get(id)].text; };
  const row = (label, f) => html`<tr><td>${label}</td><td class="num">${f(d[0])}</td><td class="num">${f(d[1])}</td></tr>`;
  return html`<div class="stack"><${Pictured} label="comparison" json=${{ first: left, second: right }} said=${`The same: ${overlaps}. ${fresh.length} new, ${gone.length} gone.`} picture=${html`<${Slope} left=${left} right=${right} text=${text} bank=${bank} />`}
      table=${html`<table><thead><tr><th>Memory</th><th class="num">First</th><th class="num">Second</th></tr></thead><tbody>${[...new Set([...right, ...left])].slice(0, 100).map((i) => html`<tr><td><${Link} to=${["b", bank, "m", i]}>${flat(text(i), 90)}<//></td><td class="num">${left.indexOf(i) + 1 || "–"}</td><td class="num">${right.indexOf(i) + 1 || "–"}</td></tr>`)}</tbody></table>`} />
    <table style=${{ maxWidth: "420px" }}><thead><tr><th></th><th class="num"><${Link} to=${["b", bank, "recall"]} params=${{ r: pack(trimmed(one)) }}>First<//></th><th class="num"><${Link} to=${["b", bank, "recall"]} params=${{ r: pack(trimmed(other)) }}>Second<//></th></tr></thead><tbody>${row("results", (e) => plain(e.answer.results.length))}${row("candidates", (e) => plain(e.cut.count))}${row("tokens", (e) => plain(e.tokens.used))}${row("took", (e) => ms(root(e)))}${row("ordered by", (e) => e.formula.ordered_by)}${row("bank version", (e) => plain(e.bank.version))}</tbody></table></div>`;
}

function Slope({ left, right, text, bank }) {
  const [box, width] = useWidth(900);
  const W = Math.min(width, 1080), between = W >= 640 ? 140 : 56, X = (W - between) / 2, Y = X + between, most = letters(X - 56);
  const a = left.slice(0, FIRST), b = right.slice(0, FIRST), H = Math.max(a.length, b.length, 1) * STEP + 24;
  const y = (i) => 30 + i * STEP;
  return html`<div ref=${box}><svg width=${W} height=${H} viewBox=${`0 0 ${W} ${H}`} role="group" aria-label="Places in both">
    <text class="small dim" x=${X} y="12" text-anchor="end">first</text><text class="small dim" x=${Y} y="12">second</text>
    ${a.map((id, i) => { const j = b.indexOf(id); return j < 0 ? null : html`<line x1=${X + 8} x2=${Y - 8} y1=${y(i) - 4} y2=${y(j) - 4} stroke=${i === j ? "var(--line)" : "var(--edge)"} stroke-width=${Math.abs(i - j) >= 3 ? 2 : 1.2} />`; })}
    ${a.map((id, i) => html`<a href=${href(["b", bank, "m", id])}><text class="small n" x=${X} y=${y(i)} text-anchor="end">${right.includes(id) ? "" : "gone · "}${flat(text(id), right.includes(id) ? most : most - 7)} ${i + 1}</text></a>`)}
    ${b.map((id, i) => html`<a href=${href(["b", bank, "m", id])}><text class="small n" x=${Y} y=${y(i)} style=${left.includes(id) ? null : { fontWeight: 600 }}>${i + 1} ${flat(text(id), left.includes(id) ? most : most - 8)}${left.includes(id) ? "" : " · new"}</text></a>`)}</svg></div>`;
}
