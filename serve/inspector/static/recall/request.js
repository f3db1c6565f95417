/** The request: all fields of a recall, chips for what is no default. @module */
import { html, useState } from "../vendor/ui.js";
import { Check, Chip, Field } from "../parts/common.js";
import { flat } from "../parts/text.js";
import { changeSaid } from "./ladder.js";

const TYPES = ["world", "experience", "observation"];
const TRY = [["enable_reranking", "reranker off"], ["enable_text_search", "words off"], ["enable_graph_retrieval", "links off"], ["enable_temporal_retrieval", "time off"]];

/** A request without what is a default anyway. */
export function trimmed(request) {
  const defaults = { budget: "mid", max_tokens: 4096, tags_match: "any", temporal_mode: "rank" };
  return Object.fromEntries(Object.entries(request).filter(([name, v]) => v !== undefined && v !== null && v !== "" && v !== defaults[name] && !(Array.isArray(v) && !v.length) && !(typeof v === "object" && !Array.isArray(v) && !Object.keys(v).length)));
}

const number = (text) => (text === "" ? undefined : Number(text));
const list = (text) => text.split(",").map((t) => t.trim()).filter(Boolean);

export function Request({ request, change, run, fields = {}, busy, beside }) {
  const set = (name) => (value) => change({ ...request, [name]: value });
  const settings = request.settings ?? {}, scores = request.min_scores ?? {}, window = request.temporal_window ?? {};
  const setting = (name, value) => { const next = { ...settings, [name]: value }; if (value === undefined) delete next[name]; set("settings")(next); };
  const [metadata, setMetadata] = useState(JSON.stringify(request.metadata_filter ?? "") === '""' ? "" : JSON.stringify(request.metadata_filter));
  const chips = Object.entries(trimmed(request)).filter(([name]) => name !== "query");
  const json = (text) => { setMetadata(text); try { set("metadata_filter")(text.trim() ? JSON.parse(text) : undefined); } catch { /* not yet JSON */ } };
  return html`<form class="request" noValidate onSubmit=${(e) => { e.preventDefault(); run(); }} aria-label="Request">
    <${Field} label="Question" error=${fields.query}><textarea data-find="" dir="auto" rows="3" value=${request.query ?? ""} onInput=${(e) => set("query")(e.target.value)} /><//>
    <div class="row" style=${{ marginBottom: "8px" }}><button class="primary" disabled=${!request.query?.trim()} title="Ctrl Enter">${busy ? "Running…" : "Run"}</button>${beside}</div>
    ${chips.length > 0 && html`<div class="chips" style=${{ marginBottom: "8px" }}>${chips.map(([name, value]) => html`<${Chip} label=${name} onRemove=${() => set(name)(undefined)}>${flat(changeSaid({ [name]: typeof value === "object" && !Array.isArray(value) && !["settings", "min_scores"].includes(name) ? JSON.stringify(value) : value }), 60)}<//>`)}</div>`}
    <div class="grid2"><${Field} label="Budget"><select value=${request.budget ?? "mid"} onChange=${(e) => set("budget")(e.target.value)}><option>low</option><option>mid</option><option>high</option></select><//>
    <${Field} label="Max tokens" error=${fields.max_tokens}><input type="number" value=${request.max_tokens ?? 4096} onInput=${(e) => set("max_tokens")(number(e.target.value))} /><//></div>
    <div class="grid2"><${Field} label="Limit" error=${fields.limit}><input type="number" min="1" value=${request.limit ?? ""} onInput=${(e) => set("limit")(number(e.target.value))} /><//>
    <${Field} label="Merge above" error=${fields.dedupe}><input type="number" step="0.01" min="0" max="1" placeholder="cosine" value=${request.dedupe ?? ""} onInput=${(e) => set("dedupe")(number(e.target.value))} /><//></div>
    <details open=${Boolean(request.types || request.tags || request.metadata_filter || request.exclude_ids)}><summary>Filters</summary>
      <fieldset><legend>Types</legend>${TYPES.map((type) => html`<${Check} label=${type} value=${!request.types || request.types.includes(type)} onChange=${(on) => { const next = TYPES.filter((t) => (t === type ? on : !request.types || request.types.includes(t))); set("types")(next.length === 3 || !next.length ? undefined : next); }} />`)}</fieldset>
      <${Field} label="Tags, with commas" error=${fields.tags}><input value=${(request.tags ?? []).join(", ")} onChange=${(e) => set("tags")(list(e.target.value))} /><//>
      <${Field} label="Tags match"><select value=${request.tags_match ?? "any"} onChange=${(e) => set("tags_match")(e.target.value)}>${["any", "all", "any_strict", "all_strict", "exact"].map((m) => html`<option>${m}</option>`)}</select><//>
      <${Field} label="Metadata filter, JSON" error=${fields.metadata_filter}><textarea rows="2" class="mono" value=${metadata} onInput=${(e) => json(e.target.value)} /><//>
      <${Field} label="Leave out ids, with commas" error=${fields.exclude_ids}><input class="mono" value=${(request.exclude_ids ?? []).join(", ")} onChange=${(e) => set("exclude_ids")(list(e.target.value))} /><//>
      <${Check} label="Prefer observations" value=${Boolean(request.prefer_observations)} onChange=${(on) => set("prefer_observations")(on || undefined)} /></details>
    <details open=${Boolean(request.temporal_window || request.as_of || request.query_timestamp || request.timezone)}><summary>Time</summary>
      <${Field} label="Asked at" error=${fields.query_timestamp}><input placeholder="now" value=${request.query_timestamp ?? ""} onChange=${(e) => set("query_timestamp")(e.target.value)} /><//>
      <${Field} label="As of" error=${fields.as_of}><input placeholder="2024-10-31" value=${request.as_of ?? ""} onChange=${(e) => set("as_of")(e.target.value)} /><//>
      <div class="grid2"><${Field} label="Window from" error=${fields.temporal_window}><input placeholder="2024-10-01" value=${window.start ?? ""} onChange=${(e) => set("temporal_window")(trimmed({ ...window, start: e.target.value }))} /><//><${Field} label="to"><input placeholder="2024-10-31" value=${window.end ?? ""} onChange=${(e) => set("temporal_window")(trimmed({ ...window, end: e.target.value }))} /><//></div>
      <${Check} label="The window is a filter" value=${request.temporal_mode === "filter"} onChange=${(on) => set("temporal_mode")(on ? "filter" : undefined)} />
      <${Field} label="Time zone" error=${fields.timezone}><input placeholder="the bank's" value=${request.timezone ?? ""} onChange=${(e) => set("timezone")(e.target.value)} /><//></details>
    <details open=${Object.keys(scores).length > 0}><summary>Floors</summary><div class="grid2">${["semantic", "keyword", "reranker", "final"].map((name) => html`<${Field} label=${name}><input type="number" step="any" value=${scores[name] ?? ""} onInput=${(e) => set("min_scores")(trimmed({ ...scores, [name]: number(e.target.value) }))} /><//>`)}</div>${fields.min_scores && html`<span class="field-error">${fields.min_scores}</span>`}</details>
    <details open=${Object.keys(settings).length > 0}><summary>Try settings, this request only</summary>
      ${TRY.map(([name, label]) => html`<${Check} label=${label} value=${settings[name] === false} onChange=${(on) => setting(name, on ? false : undefined)} />`)}
      <${Field} label="Fusion"><select value=${settings.fusion ?? ""} onChange=${(e) => setting("fusion", e.target.value || undefined)}><option value="">the bank's</option><option>rrf</option><option>convex</option><option>interleave</option></select><//>
      <${Field} label="Boosts"><input placeholder="graph:high, bm25:low" value=${settings.recall_strategy_boosts ?? ""} onChange=${(e) => setting("recall_strategy_boosts", e.target.value || undefined)} /><//>
      <${Field} label="Recency"><select value=${settings.recency_decay_function ?? ""} onChange=${(e) => setting("recency_decay_function", e.target.value || undefined)}><option value="">the server's</option><option>linear</option><option>exponential</option><option>none</option></select><//>
      <${Field} label="Most candidates"><input type="number" min="1" value=${settings.reranker_max_candidates ?? ""} onInput=${(e) => setting("reranker_max_candidates", number(e.target.value))} /><//>
      ${fields.settings && html`<span class="field-error">${fields.settings}</span>`}</details>
  </form>`;
}
