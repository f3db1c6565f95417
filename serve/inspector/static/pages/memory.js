/** One memory: what it says, when, what it is linked with, what became of it. @module */
import { html, useState } from "../vendor/ui.js";
import { ask, bankPath, get, query } from "../api.js";
import { useLoad } from "../load.js";
import { plain, score } from "../format.js";
import { go, href, pack } from "../route.js";
import { Chip, Empty, Field, Id, Link, Loaded, Problem, Sure, Time } from "../parts/common.js";
import { Name, Text } from "../parts/text.js";

const KINDS = { causes: "causes", caused_by: "is caused by", enables: "enables", prevents: "prevents", semantic: "alike", sequence: "next in the document", temporal: "near in time", entity: "same entity", source: "made from", observation: "told by", superseded_by: "superseded" };

const CHIPS = 100;
const rest = (list) => list.length > CHIPS && html`<span class="small dim">${plain(list.length - CHIPS)} more</span>`;

export function Memory({ bank, id, may }) {
  const from = useLoad((signal) => get(bankPath(bank, `memories/${encodeURIComponent(id)}`), { signal }), [bank, id]);
  const links = useLoad((signal) => get(bankPath(bank, `memories/${encodeURIComponent(id)}/links${query({ limit: 60 })}`), { signal }), [bank, id]);
  return html`<h1>Memory</h1><${Loaded} from=${from}>${(m) => html`<div class="stack">
    <p style=${{ fontSize: "16px", lineHeight: "24px" }}><${Text} value=${m.text} /></p>
    ${m.state === "invalidated" && html`<div class="note bad"><p>Invalidated <${Time} value=${m.invalidated_at} />${m.invalidation_reason && html`: <bdi>${m.invalidation_reason}</bdi>`}. No recall finds it.</p></div>`}
    <dl class="pairs"><dt>Id</dt><dd><${Id} value=${m.id} /></dd><dt>Type</dt><dd>${m.type}</dd>
      ${m.context && html`<dt>Context</dt><dd><${Text} value=${m.context} /></dd>`}
      <dt>Occurred</dt><dd><${Time} value=${m.occurred_start} />${m.occurred_end && html` – <${Time} value=${m.occurred_end} />`}</dd>
      <dt>Mentioned</dt><dd><${Time} value=${m.mentioned_at} /></dd><dt>Written</dt><dd><${Time} value=${m.created_at} />${m.edited_at && html`, edited <${Time} value=${m.edited_at} />`}</dd>
      ${(m.valid_from || m.valid_until) && html`<dt>Held</dt><dd><${Time} value=${m.valid_from} /> – <${Time} value=${m.valid_until} /></dd>`}
      ${m.document_id && html`<dt>Document</dt><dd><${Link} to=${["b", bank, "documents", m.document_id]}><${Name} value=${m.document_id} /><//></dd>`}
      ${m.entities.length > 0 && html`<dt>Entities</dt><dd class="chips">${m.entities.slice(0, CHIPS).map((e) => html`<${Chip}><${Link} to=${["b", bank, "entities"]} params=${{ q: e }}><${Name} value=${e} /><//><//>`)}${rest(m.entities)}</dd>`}
      ${m.tags.length > 0 && html`<dt>Tags</dt><dd class="chips">${m.tags.slice(0, CHIPS).map((t) => html`<${Chip}><${Link} to=${["b", bank, "memories"]} params=${{ tags: t }}><${Name} value=${t} /><//><//>`)}${rest(m.tags)}</dd>`}
      ${Object.keys(m.metadata).length > 0 && html`<dt>Metadata</dt><dd>${Object.entries(m.metadata).slice(0, 100).map(([k, v]) => html`<div><${Name} value=${k} mono />: <${Text} value=${String(v)} /></div>`)}</dd>`}
      ${m.proof_count > 1 && html`<dt>Proof</dt><dd>${plain(m.proof_count)}</dd>`}</dl>
    <${WhyNotIn} bank=${bank} id=${m.id} />
    ${may("write") && html`<${Changes} bank=${bank} m=${m} changed=${from.again} />`}
    ${m.source_memories?.length > 0 && html`<section><h2>Made from</h2><ul>${m.source_memories.map((s) => html`<li style=${{ padding: "4px 0" }}><${Text} value=${s.text} to=${href(["b", bank, "m", s.id])} /></li>`)}</ul></section>`}
    <section><h2>Links</h2><${Loaded} from=${links} empty=${(l) => !l.links.length && html`<${Empty}>Nothing is linked with it.<//>`}>${(l) => html`<p class="dim">${Object.entries(l.totals).map(([k, n]) => `${plain(n)} ${KINDS[k] ?? k}`).join(", ")}</p>
      <div class="scroll"><table class="cards"><thead><tr><th>Kind</th><th>Memory</th><th class="num">Weight</th><th>When</th></tr></thead><tbody>${l.links.map((k) => html`<tr><td class="nowrap">${KINDS[k.kind] ?? k.kind}${k.via && html` <${Name} value=${k.via} />`}<span class="dim">${k.direction === "in" ? " ←" : k.direction === "out" ? " →" : ""}</span></td><td class="whole" style=${{ minWidth: "200px" }}><${Text} value=${k.text} to=${href(["b", bank, "m", k.id])} /></td><td class="num" data-label="weight">${score(k.weight)}</td><td><${Time} value=${k.date} /></td></tr>`)}</tbody></table></div>`}<//></section>
  </div>`}<//>`;
}

function WhyNotIn({ bank, id }) {
  const [question, setQuestion] = useState("");
  const open = (event) => { event.preventDefault(); go(href(["b", bank, "recall"], { r: pack({ query: question }), m: id, v: "why" })); };
  return html`<form class="row" onSubmit=${open}><label class="grow"><span class="sr">A question</span><input placeholder="Why is it not in the answer to …?" value=${question} onInput=${(e) => setQuestion(e.target.value)} /></label><button disabled=${!question.trim()}>Why not?</button></form>`;
}

function Changes({ bank, m, changed }) {
  const [text, setText] = useState(null);
  const [error, setError] = useState(null);
  const path = bankPath(bank, `memories/${m.id}`);
  const patch = async (body) => { await ask("PATCH", path, { body }); setText(null); changed(); };
  const valid = m.state === "valid";
  return html`<section><h2>Change</h2>
    ${text !== null && html`<${Field} label="Text"><textarea rows="4" value=${text} onInput=${(e) => setText(e.target.value)} /><//>`}
    <${Problem} error=${error} />
    <div class="row">${text === null ? valid && html`<button onClick=${() => setText(m.text)}>Edit</button>` : html`<button class="primary" onClick=${() => patch({ text }).catch(setError)}>Save</button><button onClick=${() => setText(null)}>Cancel</button>`}
    ${valid ? html`<${Sure} label="Invalidate" sentence="No recall will find it; it can be restored." act=${(reason) => patch({ state: "invalidated", ...(reason ? { reason } : {}) })} />` : html`<button onClick=${() => patch({ state: "valid" }).catch(setError)}>Restore</button>`}
    <${Sure} label="Delete" sentence="The memory, its links, and what was derived from it alone go for good." act=${async () => { await ask("DELETE", path); go(href(["b", bank, "memories"])); }} /></div></section>`;
}
