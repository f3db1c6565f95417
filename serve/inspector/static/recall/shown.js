/** An explained recall: results with their flow, and the detail of what is chosen. @module */
import { html, useMemo, useState } from "../vendor/ui.js";
import { useKeys } from "../keys.js";
import { plain } from "../format.js";
import { Empty, Link, Pictured, Time } from "../parts/common.js";
import { Text } from "../parts/text.js";
import { chain, ends, index, sentence } from "./model.js";
import { Flow, FlowTable } from "./flow.js";
import { PathTable, Paths, pathSaid } from "./path.js";
import { Question, TimeAxis, TimeTable, said as timeSaid } from "./timeaxis.js";
import { Results } from "./results.js";
import { Score } from "./strip.js";
import { Take } from "./take.js";
import { TokenTable, Tokens, tokensSaid } from "./tokens.js";
import { SpanTable, Waterfall } from "./waterfall.js";
import { WhyNot } from "./ladder.js";

const TABS = [["score", "Score"], ["why", "Why not"], ["time", "Time"], ["path", "Path"], ["tokens", "Tokens"], ["latency", "Latency"], ["take", "Take along"], ["json", "JSON"]];

/**
 * `at`: {m, v}: the chosen memory (a place, or the id of one that is in no list) and the tab;
 * `choose` changes them. `offline`: nothing is asked for.
 */
export function Shown({ bank, request, explained, at, choose, exclude, usual, offline = false, stale = false }) {
  const model = useMemo(() => index(explained), [explained]);
  const [pinned, setPinned] = useState([]);
  const m = typeof at.m === "number" ? at.m : model.place.get(at.m) ?? null;
  const id = m === null ? (typeof at.m === "string" ? at.m : null) : model.memories[m].id;
  const pin = (item) => setPinned((p) => (p.includes(item) ? p.filter((x) => x !== item) : [...p, item].slice(-3)));
  const step = (n) => () => { const place = m === null ? -1 : model.served.indexOf(m); const next = model.served[Math.max(0, Math.min(model.served.length - 1, place + n))]; if (next !== undefined) choose({ m: next }); };
  useKeys({ ArrowDown: step(1), ArrowUp: step(-1), w: () => choose({ v: "why" }), p: () => m !== null && pin(m), x: () => m !== null && exclude?.(model.memories[m].id), Escape: () => choose({ m: null }), Enter: () => choose({ v: "score" }) });
  const view = TABS.some(([name]) => name === at.v) ? at.v : "score";
  const { time, spans } = explained;
  const memory = m === null ? null : model.memories[m];
  const move = (event) => { const i = TABS.findIndex(([name]) => name === view), next = { ArrowRight: i + 1, ArrowLeft: i - 1 }[event.key]; if (next !== undefined && TABS[next]) { event.preventDefault(); event.stopPropagation(); choose({ v: TABS[next][0] }); event.currentTarget.children[next].focus(); } };
  return html`<section class=${stale ? "stale" : ""} aria-label="Results and flow"><p class="sentence" role="status">${sentence(explained)}</p>
      ${!explained.formula ? html`<${Empty}>Only a retired type was asked for.<//>` : html`
      ${model.served.length ? null : html`<${Nothing} model=${model} />`}
      <${Pictured} label="rank flow" json=${explained.fused} said=${html`<span class="dim">${plain(explained.cut.count)} candidates, ${plain(model.rows.size)} ranked, ${plain(model.served.length)} served. Lines: the first twelve, what is chosen, what is pinned.</span>`} picture=${html`<${Flow} model=${model} m=${m} pinned=${pinned} choose=${choose} pin=${pin} />`} table=${html`<${FlowTable} model=${model} choose=${choose} />`} />
      <${Results} model=${model} m=${m} choose=${choose} />
      ${model.left.size > 0 && html`<${Left} model=${model} choose=${choose} />`}`}</section>
    <section class="detail" aria-label="Detail">
      ${memory && html`<div style=${{ marginBottom: "12px" }}><p class="narrowly"><button class="link" onClick=${() => document.querySelector('.results li[aria-current="true"], .results')?.scrollIntoView({ block: "center" })}>Back to the results</button></p><p><${Text} value=${memory.text} cut=${memory.cut} clamp /></p><p class="small dim">${model.servedRank.has(m) ? `Place ${model.servedRank.get(m)}` : "Not served"} · <${Time} value=${memory.start ?? memory.mentioned} />${!offline && html` · <${Link} to=${["b", bank, "m", memory.id]}>Open<//>`} · <button class="link small" aria-pressed=${pinned.includes(m)} onClick=${() => pin(m)}>${pinned.includes(m) ? "Unpin" : "Pin"}</button>${exclude && html` · <button class="link small" onClick=${() => exclude(memory.id)}>Leave out</button>`}</p></div>`}
      <div class="tabs" role="tablist" aria-label="Detail" onKeyDown=${move}>${TABS.map(([name, label]) => html`<button role="tab" id=${`tab-${name}`} aria-selected=${view === name} aria-controls="tabpanel" tabindex=${view === name ? 0 : -1} onClick=${() => choose({ v: name })}>${label}</button>`)}</div>
      <div role="tabpanel" id="tabpanel" aria-labelledby=${`tab-${view}`}>${
        !explained.formula ? null
        : view === "score" ? (m === null ? html`<${Empty}>Choose a result: its score is shown part by part.<//>` : html`<${Score} model=${model} m=${m} choose=${choose} />`)
        : view === "why" ? html`<${WhyNot} bank=${bank} request=${request} id=${id} text=${memory?.text} choose=${choose} offline=${offline} known=${explained.why.find((w) => w.id === id)} />`
        : view === "time" ? html`<${Question} text=${request.query} time=${time} /><${Pictured} label="time" json=${time} said=${timeSaid(time)} picture=${html`<${TimeAxis} model=${model} m=${m} choose=${choose} />`} table=${html`<${TimeTable} time=${time} />`} /><${Reading} reading=${explained.reading} />`
        : view === "path" ? html`<${Pictured} label="paths" json=${m !== null && model.path.has(m) ? chain(model, m) : explained.paths} said=${pathSaid(model, m)} picture=${html`<${Paths} model=${model} m=${m} choose=${choose} />`} table=${html`<${PathTable} model=${model} m=${m} choose=${choose} />`} />`
        : view === "tokens" ? html`<${Pictured} label="tokens" json=${explained.tokens} said=${tokensSaid(model)} picture=${html`<${Tokens} model=${model} m=${m} choose=${choose} />`} table=${html`<${TokenTable} model=${model} choose=${choose} />`} />`
        : view === "latency" ? html`<${Pictured} label="latency" json=${spans} said="On one axis of wall time; steps overlap, so they are no sum. Outlined: what the answer waited for." picture=${html`<${Waterfall} spans=${spans} usual=${usual} />`} table=${html`<${SpanTable} spans=${spans} />`} />`
        : view === "take" ? html`<${Take} model=${model} bank=${bank} request=${request} />`
        : html`<pre tabindex="0" aria-label="JSON of the explanation">${JSON.stringify(explained, null, 1).slice(0, 300_000)}</pre>`}</div></section>`;
}

const Reading = ({ reading }) => html`<h3>What was read</h3><dl class="pairs"><dt>Words</dt><dd>${reading.terms.map((t) => `${flatTerm(t.term)} (${plain(t.documents)})`).join(", ") || "none"}</dd><dt>Entities</dt><dd>${reading.entities.map((e) => e.name).join(", ") || "none that the bank knows"}</dd><dt>Intent</dt><dd>${reading.cues.map((c) => ({ why: "asks why: causes lead further", now: "asks about now: what is over counts down", happened: "asks what happened: the time decides" })[c]).join("; ") || "none"}</dd></dl>`;
const flatTerm = (term) => term.slice(0, 40);

function Nothing({ model }) {
  const { arms, left } = ends(model);
  return html`<${Empty}><p><strong>No results.</strong> ${left.length ? `Found, and left out: ${left.map(([reason, n]) => `${n} ${reason}`).join(", ")}.` : "No arm listed anything."}</p><ul>${arms.map((a) => html`<li>${a}</li>`)}</ul><p>A wider filter, a higher budget or more tokens may help; “Why not” says it for one memory.</p><//>`;
}

function Left({ model, choose }) {
  const rows = [...model.left.values()].sort((a, b) => (model.rankedRank.get(a.m) ?? 1e9) - (model.rankedRank.get(b.m) ?? 1e9));
  return html`<details><summary>${plain(rows.length)} left out after they were found</summary><ul>${rows.slice(0, 60).map((l) => html`<li class="row" style=${{ padding: "2px 0" }}><button class="quiet grow" style=${{ textAlign: "start", justifyContent: "start" }} onClick=${() => choose({ m: l.m, v: "why" })}><${Text} value=${model.memories[l.m].text.slice(0, 100)} /></button><span class="badge">${l.at === "tokens" ? `tokens: needs ${plain(l.needs - l.room)} more` : l.at.replaceAll("_", " ")}</span></li>`)}</ul></details>`;
}
