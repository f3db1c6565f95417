/** Documents and what they are cut into. @module */
import { html, useState } from "../vendor/ui.js";
import { ask, bankPath, get, query } from "../api.js";
import { useLoad } from "../load.js";
import { count, plain, plural } from "../format.js";
import { go, href } from "../route.js";
import { Chip, Empty, Field, Link, Loaded, Problem, Sure, Time } from "../parts/common.js";
import { Name, Text } from "../parts/text.js";

export const Documents = (props) => (props.id === undefined ? html`<${List} ...${props} />` : html`<${One} ...${props} />`);

function List({ bank, params }) {
  const [cursors, setCursors] = useState([]);
  const q = params.q ?? "", cursor = cursors.at(-1);
  const from = useLoad((signal) => get(bankPath(bank, `documents${query({ q, limit: 50, count: "upto", cursor })}`), { signal }), [bank, q, cursor]);
  return html`<h1>Documents</h1><${Field} label="Part of an id"><input type="search" data-find="" value=${q} onChange=${(e) => { setCursors([]); go(href(["b", bank, "documents"], { q: e.target.value }), { replace: true }); }} /><//>
    <${Loaded} from=${from} empty=${(d) => !d.items.length && html`<${Empty}>${q ? "No document is called so." : "No document was retained. Imported memories may have none."}<//>`}>${(d) => html`<p class="dim">${d.total_is_estimate ? count(10_001) : plural(d.total, "document")}, latest change first</p><div class="scroll"><table class="cards"><thead><tr><th>Document</th><th class="num">Memories</th><th class="num">Characters</th><th>Changed</th><th>Tags</th></tr></thead><tbody>
      ${d.items.map((x) => html`<tr><td class="whole"><${Link} to=${["b", bank, "documents", x.id]}><${Name} value=${x.id} /><//></td><td class="num" data-label="memories">${plain(x.memory_unit_count)}</td><td class="num" data-label="characters">${x.text_length ? plain(x.text_length) : "–"}</td><td><${Time} value=${x.updated_at} /></td><td><div class="chips">${x.tags.slice(0, 6).map((t) => html`<${Chip}><${Name} value=${t} /><//>`)}</div></td></tr>`)}</tbody></table></div>
      <div class="row end"><button disabled=${!cursors.length} onClick=${() => setCursors(cursors.slice(0, -1))}>Previous</button><button disabled=${!d.next} onClick=${() => setCursors([...cursors, d.next])}>Next</button></div>`}<//>`;
}

function One({ bank, id, may }) {
  const path = bankPath(bank, `documents/${encodeURIComponent(id)}`);
  const from = useLoad((signal) => get(path, { signal }), [path]);
  const chunks = useLoad((signal) => get(`${path}/chunks${query({ limit: 50 })}`, { signal }), [path]);
  const history = useLoad((signal) => get(`${path}/history${query({ limit: 30 })}`, { signal }), [path]);
  const [said, setSaid] = useState(null);
  const [error, setError] = useState(null);
  const reprocess = async () => { try { const o = await ask("POST", `${path}/reprocess`); setSaid(o.operation_id); setError(null); } catch (failed) { setError(failed); } };
  return html`<h1><${Name} value=${id} /></h1><${Loaded} from=${from}>${(d) => html`<p class="dim">${plural(d.memory_unit_count, "memory", "memories")} · changed <${Time} value=${d.updated_at} /> · <${Link} to=${["b", bank, "memories"]} params=${{ document: id }}>its memories<//></p>
    <${Problem} error=${error} />${said && html`<div class="note"><p>Queued: <${Link} to=${["b", bank, "operations"]}>operations<//></p></div>`}
    ${may("write") && html`<div class="row"><button onClick=${reprocess}>Reprocess</button><${Sure} label="Delete" sentence="The document and all its memories go for good." act=${async () => { await ask("DELETE", path); go(href(["b", bank, "documents"])); }} /></div>`}
    ${d.original_text && html`<h2>Text</h2><div class="note"><${Text} value=${d.original_text} /></div>`}`}<//>
    <h2>Chunks</h2><${Loaded} from=${chunks} empty=${(c) => !(c.items ?? c.chunks ?? []).length && html`<${Empty}>None: its memories were imported, or texts are not stored.<//>`}>${(c) => html`<ol>${(c.items ?? c.chunks).map((x) => html`<li class="note"><span class="small dim">${x.chunk_index}</span> <${Text} value=${x.chunk_text ?? x.text} /></li>`)}</ol>`}<//>
    <h2>History</h2><${Loaded} from=${history} empty=${(h) => !h.items.length && html`<${Empty}>Nothing is noted.<//>`}>${(h) => html`<table><thead><tr><th>When</th><th>What</th><th class="num">Added</th><th class="num">Removed</th></tr></thead><tbody>${h.items.map((x) => html`<tr><td><${Time} value=${x.created_at} /></td><td>${x.kind}</td><td class="num">${plain(x.facts_added)}</td><td class="num">${plain(x.facts_removed)}</td></tr>`)}</tbody></table>`}<//>`;
}
