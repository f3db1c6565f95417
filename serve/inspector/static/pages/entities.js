/** Entities: search, picture of the most mentioned, neighbours, merge and split. @module */
import { html, useState } from "../vendor/ui.js";
import { ask, bankPath, get, query } from "../api.js";
import { useLoad } from "../load.js";
import { count, plain } from "../format.js";
import { go, href } from "../route.js";
import { Chip, Empty, Field, Id, Link, Loaded, Pictured, Problem, Sure, Time } from "../parts/common.js";
import { Name } from "../parts/text.js";
import { Network } from "../charts/network.js";

const IN_PICTURE = 150;

export function Entities({ bank, params, may }) {
  const q = params.q ?? "", chosen = params.e ?? null;
  const from = useLoad((signal) => get(bankPath(bank, `entities${query({ q, limit: 50, count: "upto" })}`), { signal }), [bank, q]);
  const graph = useLoad((signal) => get(bankPath(bank, `entities/graph${query({ limit: IN_PICTURE })}`), { signal }), [bank]);
  const set = (changes) => go(href(["b", bank, "entities"], { ...params, ...changes }), { replace: true });
  return html`<h1>Entities</h1><div class="cols"><section>
    <${Field} label="Part of a name"><input type="search" data-find="" value=${q} onChange=${(e) => set({ q: e.target.value, e: undefined })} /><//>
    <${Loaded} from=${from} empty=${(d) => !d.items.length && html`<${Empty}>${q ? "No entity is called so." : "No memory mentions an entity."}<//>`}>${(d) => html`<p class="dim">${d.items.length} of ${d.total_is_estimate ? count(10_001) : count(d.total)}, most mentioned first</p>
      <table><thead><tr><th>Name</th><th class="num">Mentions</th><th>Last</th></tr></thead><tbody>${d.items.map((e) => html`<tr aria-current=${e.id === chosen ? "true" : null}><td><a href=${href(["b", bank, "entities"], { ...params, e: e.id })}><${Name} value=${e.canonical_name} /></a></td><td class="num">${plain(e.mention_count)}</td><td><${Time} value=${e.last_seen} /></td></tr>`)}</tbody></table>`}<//></section>
    <section>${chosen ? html`<${Entity} key=${chosen} bank=${bank} id=${chosen} may=${may} close=${() => set({ e: undefined })} choose=${(e) => set({ e })} />` : html`<${Loaded} from=${graph} rows=${3} empty=${(g) => !g.nodes.length && html`<span></span>`}>${(g) => html`<${Pictured} label="entities" json=${g} said=${`The ${g.nodes.length} most mentioned of ${plain(g.total_entities)}; lines join those that memories mention together.`} picture=${html`<${Network} graph=${g} chosen=${null} onChoose=${(e) => set({ e })} />`} table=${html`<${Pairs} graph=${g} />`} />`}<//>`}</section></div>`;
}

const Pairs = ({ graph }) => { const names = new Map(graph.nodes.map(({ data }) => [data.id, data.label])); return html`<table><thead><tr><th>Entity</th><th>Beside</th><th class="num">Memories</th></tr></thead><tbody>${graph.edges.slice(0, 200).map(({ data }) => html`<tr><td><${Name} value=${names.get(data.source)} /></td><td><${Name} value=${names.get(data.target)} /></td><td class="num">${plain(data.weight)}</td></tr>`)}</tbody></table>`; };

function Entity({ bank, id, may, close, choose }) {
  const from = useLoad((signal) => get(bankPath(bank, `entities/${id}`), { signal }), [bank, id]);
  const near = useLoad((signal) => get(bankPath(bank, `entities/${id}/neighbours${query({ limit: 60 })}`), { signal }), [bank, id]);
  const [other, setOther] = useState("");
  const [name, setName] = useState("");
  const [error, setError] = useState(null);
  const act = async (path, body) => { await ask("POST", bankPath(bank, `entities/${id}/${path}`), { body }); setOther(""); setName(""); from.again(); near.again(); };
  return html`<${Loaded} from=${from}>${(e) => html`<div class="row"><h2 class="grow"><${Name} value=${e.canonical_name} /></h2><button onClick=${close}>Close</button></div>
    <dl class="pairs"><dt>Id</dt><dd><${Id} value=${e.id} /></dd><dt>Mentions</dt><dd>${plain(e.mention_count)} · <${Link} to=${["b", bank, "memories"]} params=${{ entity: e.id }}>memories<//></dd><dt>First, last</dt><dd><${Time} value=${e.first_seen} /> – <${Time} value=${e.last_seen} /></dd>
    ${e.aliases.length > 0 && html`<dt>Other names</dt><dd class="chips">${e.aliases.slice(0, 60).map((a) => html`<${Chip}><${Name} value=${a} /><//>`)}</dd>`}</dl>
    <h3>Mentioned with</h3><${Loaded} from=${near} rows=${2} empty=${(g) => g.nodes.length < 2 && html`<${Empty}>No memory mentions another entity beside it.<//>`}>${(g) => html`<${Pictured} label="neighbours" json=${g} said=${`${plain(g.nodes.length - 1)} entities beside it.`} picture=${html`<${Network} graph=${g} chosen=${id} onChoose=${choose} />`} table=${html`<${Pairs} graph=${g} />`} />`}<//>
    ${may("write") && html`<h3>Merge and split</h3><${Problem} error=${error} /><div class="row"><label class="grow"><span class="sr">Id of another entity</span><input placeholder="id of another entity" value=${other} onInput=${(x) => setOther(x.target.value)} /></label><${Sure} label="Merge" sentence="The other entity becomes this one: its names lead here." act=${() => act("merge", { others: [other.trim()] })} /></div>
      <div class="row"><label class="grow"><span class="sr">Another name</span><input placeholder="name that is somebody else" value=${name} onInput=${(x) => setName(x.target.value)} /></label><button disabled=${!name.trim()} onClick=${() => act("split", { name: name.trim() }).catch(setError)}>Split</button></div>`}`}<//>`;
}
