/** Tenants, limits, keys: for whoever runs the server. @module */
import { html, useRef, useState } from "../vendor/ui.js";
import { ask, get } from "../api.js";
import { useLoad } from "../load.js";
import { ago, plain } from "../format.js";
import { Check, Chip, Copy, Empty, Field, Loaded, Problem, Sure, Time } from "../parts/common.js";
import { Name, flat } from "../parts/text.js";

const SCOPES = [["read", "recall, list, look"], ["write", "change memories"], ["admin", "make and delete banks, settings"], ["operator", "tenants, keys, figures of the whole server"]];
/** Limits of a tenant; none: the server's. */
export const LIMITS = [
  ["recalls_at_once", "recalls at once"], ["recalls_per_s", "recalls a second"], ["recall_burst", "recalls in a burst"],
  ["writes_at_once", "writes at once"], ["writes_per_s", "writes a second"], ["write_burst", "writes in a burst"],
  ["reads_at_once", "lists and reads at once"], ["reads_per_s", "lists and reads a second"], ["read_burst", "lists and reads in a burst"],
  ["max_body_bytes", "bytes of a request"], ["max_items", "items of a write"], ["max_stored_bytes", "bytes stored in all"],
  ["llm_tokens_per_day", "model tokens a day"], ["llm_calls_at_once", "model calls at once"],
];

export function Admin() {
  const from = useLoad((signal) => Promise.all([get("v1/admin/tenants", { signal }), get("v1/admin/keys", { signal })]).then(([tenants, keys]) => ({ tenants, keys })), []);
  return html`<h1>Admin</h1><${NewKey} done=${from.again} />
    <${Loaded} from=${from}>${({ tenants, keys }) => html`<h2>Tenants</h2><table class="cards"><thead><tr><th>Tenant</th><th class="num">Keys</th><th>Limits</th><th></th></tr></thead><tbody>${tenants.map((t) => html`<${Tenant} key=${t.tenant} t=${t} done=${from.again} />`)}</tbody></table>
      <h2>Keys</h2>${keys.length ? html`<table class="cards"><thead><tr><th>Key</th><th>Tenant</th><th>Label</th><th>May</th><th>Made</th><th>Last used</th><th>Until</th><th></th></tr></thead><tbody>${keys.map((k) => html`<${Key} key=${k.key_id} k=${k} done=${from.again} />`)}</tbody></table>` : html`<${Empty}>There are no keys yet. This server asks for them once <code>REQUIRE_API_KEY</code> is set.<//>`}`}<//>`;
}

function NewKey({ done }) {
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  const [asked, set] = useState({ tenant: "", label: "", days: "", scopes: ["read", "write", "admin"] });
  const field = (name) => (event) => set({ ...asked, [name]: event.target.value });
  const create = async (event) => {
    event.preventDefault();
    const { days, ...body } = asked;
    try { setMade(await ask("POST", "v1/admin/keys", { body: { ...body, ...(days ? { days: Number(days) } : {}) } })); setError(null); done(); } catch (failed) { setError(failed); }
  };
  return html`<h2>New key</h2><${Problem} error=${error} /><form onSubmit=${create}><div class="row">
      <div class="grow"><${Field} label="Tenant"><input value=${asked.tenant} onInput=${field("tenant")} /><//></div><div class="grow"><${Field} label="Label"><input value=${asked.label} onInput=${field("label")} /><//></div>
      <${Field} label="Days it works"><input type="number" min="1" placeholder="always" value=${asked.days} onInput=${field("days")} /><//></div>
    <div class="row"><fieldset class="grow row" style=${{ margin: 0 }}><legend class="sr">What it may do</legend>${SCOPES.map(([scope, may]) => html`<span title=${may}><${Check} label=${scope} value=${asked.scopes.includes(scope)} onChange=${(on) => set({ ...asked, scopes: SCOPES.map(([s]) => s).filter((s) => (s === scope ? on : asked.scopes.includes(s))) })} /></span>`)}</fieldset>
      <button class="primary" disabled=${!asked.tenant.trim() || !asked.scopes.length}>Make a key</button></div></form>
    ${made && html`<div class="note warn" role="status"><p>Shown this once: <code>${made.key}</code></p><div class="row"><${Copy} text=${made.key} /><button onClick=${() => setMade(null)}>I have it</button></div></div>`}`;
}

function Key({ k, done }) {
  const over = k.expires_at && new Date(k.expires_at) < new Date();
  return html`<tr><td class="mono nowrap">${k.key_id}</td><td><${Name} value=${k.tenant} /></td><td><${Name} value=${k.label} /></td><td>${k.scopes.join(", ")}</td><td data-label="made"><${Time} value=${k.created_at} /></td><td data-label="used" class="nowrap">${k.last_used_at ? ago(k.last_used_at) : "never"}</td><td data-label="until">${k.expires_at ? html`<${Time} value=${k.expires_at} />` : "–"}</td>
    <td>${k.revoked_at ? html`<span class="badge bad">revoked</span>` : over ? html`<span class="badge bad">over</span>` : html`<${Sure} label="Revoke" sentence="Whoever uses this key is refused within seconds." act=${async () => { await ask("DELETE", `v1/admin/keys/${encodeURIComponent(k.key_id)}`); done(); }} />`}</td></tr>`;
}

function Tenant({ t, done }) {
  const dialog = useRef(null);
  const [edits, setEdits] = useState({});
  const [error, setError] = useState(null);
  const open = () => { setEdits({}); setError(null); dialog.current.showModal(); };
  const save = async (event) => {
    event.preventDefault();
    const limits = Object.fromEntries(Object.entries(edits).map(([name, text]) => [name, text === "" ? null : Number(text)]));
    try { await ask("PATCH", `v1/admin/tenants/${encodeURIComponent(t.tenant)}`, { body: { limits } }); dialog.current.close(); done(); } catch (failed) { setError(failed); }
  };
  const names = new Map(LIMITS);
  return html`<tr><td class="whole"><${Name} value=${t.tenant} /></td><td class="num" data-label="keys">${plain(t.keys)}</td>
    <td>${Object.keys(t.limits).length ? html`<div class="chips">${Object.entries(t.limits).map(([name, value]) => html`<${Chip}>${plain(value)} ${names.get(name) ?? name}<//>`)}</div>` : html`<span class="dim">the server’s</span>`}</td>
    <td><button aria-label=${`Limits of ${flat(t.tenant, 40)}`} onClick=${open}>Limits</button>
      <dialog ref=${dialog} aria-label=${`Limits of ${flat(t.tenant, 40)}`}><form onSubmit=${save}><h2>Limits of <${Name} value=${t.tenant} /></h2><p class="dim">Empty: the server’s own; 0: none. In force within seconds.</p>
        <div class="grid2">${LIMITS.map(([name, label]) => html`<${Field} label=${label} error=${error?.fields?.[name]}><input type="number" step="any" min="0" value=${edits[name] ?? t.limits[name] ?? ""} onInput=${(e) => setEdits({ ...edits, [name]: e.target.value })} /><//>`)}</div>
        <${Problem} error=${error} /><div class="row end"><button type="button" onClick=${() => dialog.current.close()}>Keep</button><button class="primary" disabled=${!Object.keys(edits).length}>Set</button></div></form></dialog></td></tr>`;
}
