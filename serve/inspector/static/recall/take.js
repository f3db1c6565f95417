/** Take along: the same recall elsewhere, the recall as a file, a test case. No key is in any of them. @module */
import { html, useState } from "../vendor/ui.js";
import { Check, Copy, save } from "../parts/common.js";
import { ARMS } from "../parts/arms.js";
import { flat } from "../parts/text.js";
import { trimmed } from "./request.js";

const OURS = ["temporal_window", "temporal_mode", "as_of", "metadata_filter", "exclude_ids", "limit", "dedupe", "explain", "settings", "timezone", "tag_groups", "min_scores", "prefer_observations", "include"];
/** Memories of a test case at most: what an order is like depends on all that a bank holds. */
const SERVED = 200, LEFT = 100;
const CASE_ARMS = { semantic: "semantic", bm25: "text", graph: "graph", temporal: "temporal" };
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const base = () => new URL("../", document.baseURI).href.replace(/\/$/, "");

/** JSON in ASCII, so that any shell and editor carries it. */
const ascii = (value) => JSON.stringify(value).replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function curl(bank, request) {
  const { settings, ...plain } = trimmed(request);
  const path = `/v1/default/banks/${encodeURIComponent(bank)}/memories/recall${settings ? "/explain" : ""}`;
  return `curl -sS ${quoted(base() + path)} \\\n  -H 'Content-Type: application/json' \\\n  -H "Authorization: Bearer $FOURFOLD_API_KEY" \\\n  -d ${quoted(ascii(settings ? { ...plain, settings } : plain))}`;
}

export function python(bank, request) {
  const body = trimmed(request);
  const literal = (value) => ascii(value).replace(/\btrue\b(?=[,}\]])/g, "True").replace(/\bfalse\b(?=[,}\]])/g, "False");
  if (!Object.keys(body).some((name) => OURS.includes(name))) {
    const { query, ...rest } = body;
    const more = Object.entries(rest).map(([n, v]) => `, ${n}=${literal(v)}`).join("");
    return `import os\n\nfrom hindsight_client import Hindsight\n\nwith Hindsight(${ascii(base())}, api_key=os.environ.get("FOURFOLD_API_KEY")) as client:\n    found = client.recall(${ascii(bank)}, ${ascii(query)}${more})\nfor result in found.results:\n    print(result.id, result.text)\n`;
  }
  const path = `/v1/default/banks/${encodeURIComponent(bank)}/memories/recall${body.settings ? "/explain" : ""}`;
  return `import json\nimport os\n\nimport httpx\n\nbody = json.loads(r"""${ascii(body).replaceAll('"""', '\\u0022\\u0022\\u0022')}""")\nkey = os.environ.get("FOURFOLD_API_KEY", "")\nanswer = httpx.post(${ascii(base() + path)}, json=body, headers={"authorization": f"Bearer {key}"}, timeout=60)\nanswer.raise_for_status()\nfor result in answer.json()${body.settings ? '["answer"]' : ""}["results"]:\n    print(result["id"], result["text"])\n`;
}

export const command = (bank, request) => `fourfold recall ${quoted(bank)} ${quoted(request.query ?? "")} --explain`;

/** A case for the case player: chosen memories, the question, what must hold. */
export function testCase(model, request, ticked) {
  const { query, settings: _, ...params } = trimmed(request);
  const chosen = [...new Set([...model.served.slice(0, SERVED), ...[...model.left.keys()].slice(0, LEFT)])];
  const place = (m) => chosen.indexOf(m);
  const served = model.served, left = chosen.filter((m) => !model.servedRank.has(m));
  const { time } = model.explained;
  const of = [];
  if (ticked.first && served.length) of.push({ kind: "first", memory: 0 });
  if (ticked.top_k) served.slice(0, 3).forEach((m) => of.push({ kind: "top_k", memory: place(m), k: 3 }));
  if (ticked.order) served.slice(1, 5).forEach((m, i) => of.push({ kind: "order", before: i, after: i + 1 }));
  if (ticked.contains && served.length) of.push({ kind: "contains", memories: served.slice(0, 5).map(place) });
  if (ticked.not_contains && left.length) of.push({ kind: "not_contains", memories: left.slice(0, 5).map(place) });
  if (ticked.arm_hit && served.length) ARMS.forEach(({ name }, a) => (model.armRanks.get(served[0])?.[a] ? of.push({ kind: "arm_hit", arm: CASE_ARMS[name], memory: 0 }) : null));
  if (ticked.window) of.push(time.window ? { kind: "window", start: time.window.start?.slice(0, 10) ?? null, end: time.window.end?.slice(0, 10) ?? null } : { kind: "window_null" });
  const memories = chosen.map((m) => { const x = model.memories[m]; return { text: x.text, type: x.type, ...(x.context ? { context: x.context } : {}), ...(x.start ? { occurred_start: x.start } : {}), ...(x.end ? { occurred_end: x.end } : {}), ...(x.mentioned ? { mentioned_at: x.mentioned } : {}), ...(x.document_id ? { document_id: x.document_id } : {}), ...(x.tags.length ? { tags: x.tags } : {}) }; });
  return [{ id: "from-the-inspector", kind: "recall", memories, query, params: { query_timestamp: time.reference_time, ...params }, expect: { kind: "all_of", of }, why: "As the recall inspector showed it.", needs: [] }];
}

export function saved(bank, request, explained, texts) {
  const bare = texts ? explained : { ...explained, memories: explained.memories.map((m) => ({ ...m, text: "", context: null, cut: true })), answer: { ...explained.answer, results: explained.answer.results.map(({ id, type, scores }) => ({ id, type, scores })), chunks: undefined, source_facts: undefined } };
  return { fourfold: "recall", saved_at: new Date().toISOString(), bank, request: trimmed(request), explained: bare };
}

export function Take({ model, bank, request }) {
  const [how, setHow] = useState("curl");
  const [texts, setTexts] = useState(true);
  const [ticked, setTicked] = useState({ contains: true, window: true, first: false, top_k: false, order: false, not_contains: false, arm_hit: false });
  const shown = { curl, python, fourfold: command }[how](bank, request);
  const file = (kind) => `${kind}-${flat(request.query ?? "", 40).replace(/[^\p{L}\p{N}]+/gu, "-")}.json`;
  return html`<div><div class="row" role="group" aria-label="Where"><span class="views">${[["curl", "curl"], ["python", "Python"], ["fourfold", "fourfold"]].map(([name, label]) => html`<button aria-pressed=${how === name} onClick=${() => setHow(name)}>${label}</button>`)}</span><${Copy} text=${shown} /></div>
    <pre data-take=${how} tabindex="0" aria-label="Command" style=${{ marginTop: "8px" }}>${shown}</pre>
    <p class="small dim">The key is read from <code>FOURFOLD_API_KEY</code>; it is in no command and no file.</p>
    <h3>As a file</h3><div class="row"><${Check} label="With the texts" value=${texts} onChange=${setTexts} /><button onClick=${() => save(file("recall"), JSON.stringify(saved(bank, request, model.explained, texts)))}>Save the recall</button></div>
    <h3>As a test case</h3><p class="small dim">With up to ${SERVED} memories, without links and entities: an order may depend on those, and on what else the bank holds.</p><fieldset><legend>What must hold</legend>${Object.keys(ticked).map((name) => html`<${Check} label=${{ first: "the first one", top_k: "the first three", order: "the order of five", contains: "five are there", not_contains: "what was left out stays out", arm_hit: "the arms of the first", window: "the window" }[name]} value=${ticked[name]} onChange=${(on) => setTicked({ ...ticked, [name]: on })} />`)}</fieldset>
    <button onClick=${() => save(file("case"), JSON.stringify(testCase(model, request, ticked), null, 1))}>Save the case</button></div>`;
}
