/** All banks of the tenant. @module */
import { html, useState } from "../vendor/ui.js";
import { get, query } from "../api.js";
import { useLoad } from "../load.js";
import { ago, count, plain } from "../format.js";
import { Empty, Link, Loaded } from "../parts/common.js";
import { Name } from "../parts/text.js";

const PAGE = 50;

export function Banks() {
  const [q, setQ] = useState("");
  const [offset, setOffset] = useState(0);
  const from = useLoad((signal) => get(`v1/default/banks${query({ q, limit: PAGE, offset })}`, { signal }), [q, offset]);
  return html`<h1>Banks</h1>
    <label class="field"><span>Part of an id or a name</span><input data-find="" type="search" value=${q} onInput=${(e) => { setQ(e.target.value); setOffset(0); }} /></label>
    <${Loaded} from=${from} empty=${(d) => !d.total && html`<${Empty}><p>${q ? "No bank is called so." : "There are no banks yet."}</p>${!q && html`<p>A bank is made by its first retain or import: <code>POST /v1/default/banks/my-bank/memories</code>.</p>`}<//>`}>
      ${(d) => html`<div class="scroll"><table class="cards"><thead><tr><th>Bank</th><th>Name</th><th class="num">Memories</th><th>Last write</th><th></th></tr></thead><tbody>
        ${d.banks.map((bank) => html`<tr><td class="whole"><${Link} to=${["b", bank.bank_id]}><${Name} value=${bank.bank_id} /><//></td><td>${bank.name !== bank.bank_id && html`<${Name} value=${bank.name} />`}</td><td class="num" data-label="memories">${plain(bank.fact_count)}</td><td class="nowrap" title=${bank.last_write_at ?? ""}>${ago(bank.last_write_at)}</td><td><${Link} to=${["b", bank.bank_id, "recall"]}>Recall<//></td></tr>`)}
        </tbody></table></div>
        <div class="row"><span class="dim grow">${offset + 1}–${offset + d.banks.length} of ${count(d.total)}</span>
          <button disabled=${!offset} onClick=${() => setOffset(offset - PAGE)}>Previous</button><button disabled=${offset + PAGE >= d.total} onClick=${() => setOffset(offset + PAGE)}>Next</button></div>`}
    <//>`;
}
