/** Tenants, limits, keys: for whoever runs the server. @module */
import { html, useState } from "../vendor/ui.js";
import { ask, get } from "../api.js";
import { useLoad } from "../load.js";
import { plain } from "../format.js";
import { Copy, Empty, Field, Loaded, Problem, Sure, Time } from "../parts/common.js";
import { Name } from "../parts/text.js";

export function Admin() {
  const from = useLoad((signal) => Promise.all([get("v1/admin/tenants", { signal }), get("v1/admin/keys", { signal })]).then(([tenants, keys]) => ({ tenants, keys })), []);
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  const [tenant, setTenant] = useState("");
  const [label, setLabel] = useState("");
  const create = async (event) => { event.preventDefault(); try { setMade(await ask("POST", "v1/admin/keys", { body: { tenant, label } })); setError(null); from.again(); } catch (failed) { setError(failed); } };
  const limit = async (name, text) => { try { await ask("PATCH", `v1/admin/tenants/${encodeURIComponent(name)}`, { body: { limits: JSON.parse(text) } }); setError(null); from.again(); } catch (failed) { setError(failed instanceof SyntaxError ? new Error(`That is no JSON: ${failed.message}`) : failed); } };
  return html`<h1>Admin</h1><${Problem} error=${error} />
    <h2>New key</h2><form class="row" onSubmit=${create}><div class="grow"><${Field} label="Tenant"><input value=${tenant} onInput=${(e) => setTenant(e.target.value)} /><//></div><div class="grow"><${Field} label="Label"><input value=${label} onInput=${(e) => setLabel(e.target.value)} /><//></div><button class="primary" disabled=${!tenant.trim()}>Make a key</button></form>
    ${made && html`<div class="note warn"><p>Shown this once: <code>${made.key}</code></p><div class="row"><${Copy} text=${made.key} /><button onClick=${() => setMade(null)}>I have it</button></div></div>`}
    <${Loaded} from=${from}>${({ tenants, keys }) => html`<h2>Tenants</h2><div class="scroll"><table><thead><tr><th>Tenant</th><th class="num">Keys</th><th style=${{ minWidth: "240px" }}>Limits</th></tr></thead><tbody>${tenants.map((t) => html`<${Tenant} key=${t.tenant} t=${t} limit=${limit} />`)}</tbody></table></div>
      <h2>Keys</h2>${keys.length ? html`<div class="scroll"><table><thead><tr><th>Key</th><th>Tenant</th><th>Label</th><th>Made</th><th></th></tr></thead><tbody>${keys.map((k) => html`<tr><td class="mono">${k.key_id}</td><td><${Name} value=${k.tenant} /></td><td><${Name} value=${k.label} /></td><td><${Time} value=${k.created_at} /></td><td>${k.revoked_at ? html`<span class="badge bad">revoked</span>` : html`<${Sure} label="Revoke" sentence="Whoever uses this key is refused within seconds." act=${async () => { await ask("DELETE", `v1/admin/keys/${k.key_id}`); from.again(); }} />`}</td></tr>`)}</tbody></table></div>` : html`<${Empty}>There are no keys yet.<//>`}`}<//>`;
}

function Tenant({ t, limit }) {
  const [text, setText] = useState(JSON.stringify(t.limits));
  return html`<tr><td><${Name} value=${t.tenant} /></td><td class="num">${plain(t.keys)}</td><td><div class="row"><label class="grow"><span class="sr">Limits of ${t.tenant}</span><input class="mono" value=${text} onInput=${(e) => setText(e.target.value)} /></label><button disabled=${text === JSON.stringify(t.limits)} onClick=${() => limit(t.tenant, text)}>Set</button></div></td></tr>`;
}
