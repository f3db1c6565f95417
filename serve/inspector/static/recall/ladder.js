/** Why not: the gates in the order of the pipeline, the failing one open, and what would help. @module */
import { html, useEffect, useState } from "../vendor/ui.js";
import { bankPath, get, query } from "../api.js";
import { useLoad } from "../load.js";
import { plain, score } from "../format.js";
import { href, pack } from "../route.js";
import { Loaded, Problem } from "../parts/common.js";
import { Text, flat } from "../parts/text.js";
import { changed } from "./model.js";

const GATES = [["exists", "is in the bank"], ["valid", "is valid"], ["types", "is of a type asked for"], ["tags", "has the tags"], ["metadata", "has the metadata"], ["as_of", "was known by then"],
  ["window", "lies in the window"], ["excluded", "was not left out"], ["arms", "an arm lists it"], ["cap", "is among those that are ranked"], ["reranker", "reaches the reranker's floor"],
  ["floors", "reaches the final floor"], ["observation", "no observation tells it"], ["duplicate", "is no duplicate"], ["rank", "is within twice the budget"], ["limit", "is within the limit"], ["tokens", "fits the tokens"]];
const ARMS = { semantic: "meaning", bm25: "words", graph: "links", temporal: "time" };
const REASONS = { no_word: "no word of the question", off: "switched off", no_window: "no window", outside_window: "outside the window", less_similar: "too unlike the question", degraded: "no embedding" };

/** One arm's case for a memory. */
function armSaid(name, arm) {
  const label = ARMS[name];
  if (arm.listed) return `${label}: rank ${plain(arm.rank)}`;
  const beyond = arm.rank !== undefined && arm.limit !== undefined && arm.rank > arm.limit;
  if (arm.score !== undefined && arm.floor !== null && arm.score < arm.floor) return `${label}: ${score(arm.score)}, the floor is ${score(arm.floor)}`;
  if (beyond) return `${label}: rank ${plain(arm.rank)}, the limit is ${plain(arm.limit)}`;
  return `${label}: ${REASONS[arm.reason] ?? arm.reason ?? "not listed"}`;
}

export function stopSaid(why) {
  const gate = why.gates.find((g) => !g.pass);
  switch (why.stopped_at) {
    case null: return `Served at place ${why.rank}.`;
    case "exists": return "This bank has no such memory.";
    case "valid": return "It was invalidated.";
    case "types": return `It is of type ${gate.value}, which was not asked for.`;
    case "tags": return "Its tags do not match those of the request.";
    case "metadata": return "Its metadata does not match the filter.";
    case "as_of": return "It was mentioned later than as_of.";
    case "window": return "It lies outside the window, which is a filter here.";
    case "excluded": return "The request leaves it out (exclude_ids).";
    case "arms": return "No arm lists it.";
    case "cap": return `Place ${gate.value ?? why.place} of the fusion; ${gate.most ?? "fewer"} are ranked.`;
    case "reranker": case "floors": return `It scores ${score(gate.value)}; the floor is ${score(gate.least)}.`;
    case "observation": return "An observation in the answer tells it already.";
    case "duplicate": return "It is nearly the same as a memory before it.";
    case "rank": return `Place ${gate.value}; at most ${gate.most} go on.`;
    case "limit": return `Place ${gate.value}; the limit is ${gate.most}.`;
    case "tokens": return `Cut by tokens: needs ${gate.value}, ${gate.most} left.`;
    default: return why.stopped_at;
  }
}

export function changeSaid(change) {
  return Object.entries(change).map(([name, value]) => (value === null ? `no ${name}` : name === "settings" || name === "min_scores"
    ? Object.entries(value).map(([n, v]) => `${name === "min_scores" ? "min_scores." : ""}${n} = ${v}`).join(", ") : `${name} = ${Array.isArray(value) ? (value.length > 3 ? `${value.length} entries` : value.join(", ")) : value}`)).join(", ");
}

export function Ladder({ why, request, bank, offline }) {
  const passed = new Map(why.gates.map((g) => [g.gate, g]));
  const shown = why.verdict === "unknown" ? GATES.slice(0, 1) : GATES;
  return html`<div><p><strong>${stopSaid(why)}</strong></p><ol class="ladder">${shown.map(([name, label]) => { const gate = passed.get(name); const state = !gate ? "after" : gate.pass ? "pass" : "stop";
    return html`<li class=${state} aria-current=${state === "stop" ? "step" : null}>${label}<span class="sr">: ${{ pass: "passed", stop: "stopped here", after: "not reached" }[state]}</span>
      ${state === "pass" && name === "arms" && html`<div class="small dim">${Object.entries(why.arms).filter(([, a]) => a.listed).map(([n, a]) => armSaid(n, a)).join("; ")}</div>`}
      ${state === "pass" && ["rank", "limit", "cap"].includes(name) && gate.value > 0 && html`<span class="small dim"> place ${plain(gate.value)}${gate.most !== undefined ? ` of ${plain(gate.most)}` : ""}</span>`}
      ${state === "stop" && html`<div class="small">${name === "arms" ? html`<ul>${Object.entries(why.arms).map(([n, a]) => html`<li style=${{ padding: 0 }} class="plain">${armSaid(n, a)}</li>`)}</ul>` : stopSaid(why)}</div>`}</li>`; })}</ol>
    ${why.would_need.length > 0 && html`<h3>What would bring it in</h3><ul>${why.would_need.slice(0, 4).map((need) => html`<li class="row" style=${{ padding: "4px 0" }}><span class="grow"><span class="mono">${changeSaid(need.change)}</span> <span class="badge ${need.checked ? "strong" : ""}">${need.checked ? (need.rank ? `checked: place ${need.rank}` : `checked: then ${need.then}`) : "not tried"}</span></span>${!offline && html`<a class="button" href=${href(["b", bank, "compare"], { a: pack(request), b: pack(changed(request, need.change)) })}>Compare</a>`}</li>`)}</ul>`}
    ${why.stopped_at !== null && !why.would_need.length && ["filtered", "left", "not_listed"].includes(why.verdict) && html`<p class="dim">No single change of the request would bring it in.</p>`}</div>`;
}

/** The ladder of a memory, asked for when it is looked at; and a search for one by a piece of its text. */
export function WhyNot({ bank, request, id, text, choose, offline, known }) {
  const [find, setFind] = useState("");
  const [sought, setSought] = useState("");
  const why = useLoad((signal) => (id && !offline ? get_(bank, request, id, signal) : Promise.resolve(known ?? null)), [bank, JSON.stringify(request), id]);
  const hits = useLoad((signal) => { const q = sought.trim(); if (!q || offline) return Promise.resolve(null);
    if (/^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i.test(q)) { choose({ m: q, v: "why" }); return Promise.resolve(null); }
    return get(bankPath(bank, `memories/list${query({ q, limit: 8, count: "upto" })}`), { signal }); }, [bank, sought]);
  useEffect(() => { setSought(""); setFind(""); }, [id]);
  return html`<div>${!offline && html`<form class="row" onSubmit=${(e) => { e.preventDefault(); setSought(find); }}><label class="grow"><span class="sr">An id or a piece of a text</span><input data-why="" placeholder="an id, or a piece of what it says" value=${find} onInput=${(e) => setFind(e.target.value)} /></label><button disabled=${!find.trim()}>Find it</button></form>
    ${hits.error && html`<${Problem} error=${hits.error} />`}
    ${hits.data && html`<ul>${hits.data.items.map((m) => html`<li><button class="quiet" style=${{ textAlign: "start" }} onClick=${() => choose({ m: m.id, v: "why" })}>${flat(m.text, 120)}</button></li>`)}${!hits.data.items.length && html`<li class="dim">No valid memory says that.</li>`}</ul>`}`}
    ${id ? html`<p style=${{ marginTop: "12px" }}><${Text} value=${text ?? id} clamp /></p><${Loaded} from=${why} rows=${8}>${(w) => (w ? html`<${Ladder} why=${w} request=${request} bank=${bank} offline=${offline} />` : html`<p class="dim">The saved file holds no ladder for it.</p>`)}<//>` : html`<p class="empty">Choose a memory, or find one by what it says: the gates it passed are shown, and the one at which it stopped.</p>`}</div>`;
}

async function get_(bank, request, id, signal) {
  const { ask } = await import("../api.js");
  const found = await ask("POST", bankPath(bank, "memories/recall/explain"), { signal, again: true, body: { ...request, why: [id], check: true, lists: 0 } });
  return found.why[0];
}
