/** Memories by filter: search, pages by key, export. @module */
import { html, useEffect, useState } from "../vendor/ui.js";
import { bankPath, get, query } from "../api.js";
import { useLoad } from "../load.js";
import { count } from "../format.js";
import { go, href } from "../route.js";
import { Chip, Empty, Field, Link, Loaded, Time, save } from "../parts/common.js";
import { Name, Text } from "../parts/text.js";

const PAGE = 100, SHOWN = 200;

export function filtersOf(params) {
  return { q: params.q, type: params.type, state: params.state, document_id: params.document, entity_id: params.entity, tags: params.tags?.split("\n"),
    tags_match: params.tags ? "any_strict" : undefined, time_field: params.field, start_date: params.from, end_date: params.to };
}

export function Memories({ bank, params }) {
  const [items, setItems] = useState([]);
  const [cursor, setCursor] = useState(null);
  const asked = JSON.stringify(params);
  useEffect(() => { setCursor(null); }, [asked]);
  const from = useLoad(async (signal) => {
    const page = await get(bankPath(bank, `memories/list${query({ ...filtersOf(params), limit: PAGE, count: "upto", cursor })}`), { signal });
    setItems((before) => (cursor ? [...before, ...page.items].slice(-SHOWN) : page.items));
    return page;
  }, [bank, asked, cursor]);
  const set = (changes) => go(href(["b", bank, "memories"], { ...params, ...changes }), { replace: true });
  const exported = async () => {
    const lines = []; let next = null;
    do { const page = await get(bankPath(bank, `memories/list${query({ ...filtersOf(params), limit: 500, count: "upto", cursor: next })}`)); lines.push(...page.items.map((m) => JSON.stringify(m))); next = page.next; } while (next && lines.length < 50_000);
    save(`${bank.replace(/[^\w-]+/g, "_")}-memories.jsonl`, lines.join("\n"), "application/jsonl");
  };
  const chips = [["document", "document"], ["entity", "entity"], ["tags", "tag"], ["from", "from"], ["to", "to"], ["field", "by"]].filter(([name]) => params[name]);
  return html`<h1>Memories</h1>
    <div class="row"><div class="grow"><${Field} label="Part of a text or context"><input type="search" data-find="" value=${params.q ?? ""} onChange=${(e) => set({ q: e.target.value })} /><//></div>
      <${Field} label="Type"><select value=${params.type ?? ""} onChange=${(e) => set({ type: e.target.value })}><option value="">all</option><option>world</option><option>experience</option><option>observation</option></select><//>
      <${Field} label="State"><select value=${params.state ?? "valid"} onChange=${(e) => set({ state: e.target.value })}><option>valid</option><option>invalidated</option></select><//>
      <${Field} label="Tag"><input value=${params.tags ?? ""} onChange=${(e) => set({ tags: e.target.value })} /><//></div>
    ${chips.length > 0 && html`<div class="chips">${chips.map(([name, label]) => html`<${Chip} label=${label} onRemove=${() => set({ [name]: undefined })}>${label}: <${Name} value=${params[name]} /><//>`)}</div>`}
    <${Loaded} from=${from} empty=${(d) => !items.length && !d.items.length && html`<${Empty}><p>No memory passes these filters.</p><p><${Link} to=${["b", bank, "memories"]}>Show all<//></p><//>`}>
      ${(d) => html`<div class="row"><span class="dim grow" role="status">${items.length} of ${d.total_is_estimate ? count(10_001) : count(d.total)}</span><button onClick=${exported}>Export as JSONL</button></div>
      <${MemoryTable} bank=${bank} items=${items} />
      ${d.next && html`<div class="row end"><button onClick=${() => setCursor(d.next)}>More</button></div>`}`}
    <//>`;
}

export const MemoryTable = ({ bank, items }) => html`<div class="scroll"><table class="cards"><thead><tr><th>Memory</th><th>Type</th><th>When</th><th>Tags</th></tr></thead><tbody>${
  items.map((m) => html`<tr><td class="whole" style=${{ minWidth: "220px" }}><${Text} value=${m.text} to=${href(["b", bank, "m", m.id])} />${m.state === "invalidated" && html` <span class="badge bad">invalidated</span>`}</td><td class="nowrap">${m.fact_type ?? m.type}</td><td><${Time} value=${m.occurred_start ?? m.mentioned_at} /></td><td><div class="chips">${(m.tags ?? []).slice(0, 8).map((t) => html`<${Chip}><${Name} value=${t} /><//>`)}${(m.tags ?? []).length > 8 && html`<span class="small dim">+${m.tags.length - 8}</span>`}</div></td></tr>`)}</tbody></table></div>`;
