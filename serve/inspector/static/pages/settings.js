/** What a bank sets for itself: value, origin, range, meaning; the diff, then one change. @module */
import { html, useState } from "../vendor/ui.js";
import { ask, bankPath, get } from "../api.js";
import { useLoad } from "../load.js";
import { href, pack } from "../route.js";
import { Field, Loaded, Problem } from "../parts/common.js";

const shown = (v) => (v === undefined || v === null ? "–" : typeof v === "object" ? JSON.stringify(v) : String(v));

const GROUPS = ["recall", "retain", "consolidation", "reflect"];
const order = (group) => (GROUPS.indexOf(group) + 1 || GROUPS.length + 1);

export function Settings({ bank, may }) {
  const from = useLoad((signal) => Promise.all([get(bankPath(bank, "config"), { signal }), get("v1/default/settings-schema", { signal })]).then(([config, schema]) => ({ config, schema })), [bank]);
  const [edits, setEdits] = useState({});
  const [find, setFind] = useState("");
  const [error, setError] = useState(null);
  const [done, setDone] = useState(false);
  const save = async () => { try { await ask("PATCH", bankPath(bank, "config"), { body: { updates: edits } }); setEdits({}); setError(null); setDone(true); from.again(); } catch (failed) { setError(failed); } };
  const names = Object.keys(edits);
  return html`<h1>Settings</h1><${Field} label="Part of a name or its meaning"><input type="search" data-find="" value=${find} onInput=${(e) => setFind(e.target.value)} /><//>
    ${names.length > 0 && html`<section class="note warn" aria-label="What would change"><h3 style=${{ marginTop: 0 }}>What would change</h3><table><tbody>${names.map((n) => html`<tr><td class="mono">${n}</td><td>${shown(from.data?.config.config[n])}</td><td>→ <strong>${edits[n] === null ? "as the server" : shown(edits[n])}</strong></td></tr>`)}</tbody></table>
      <${Problem} error=${error} /><div class="row end"><button onClick=${() => { setEdits({}); setError(null); }}>Discard</button>${names.every((n) => from.data.schema.find((s) => s.name === n).tried) && html`<a class="button" href=${href(["b", bank, "compare"], { a: pack({}), b: pack({ settings: Object.fromEntries(names.map((n) => [n, edits[n] ?? from.data.schema.find((s) => s.name === n).default])) }) })}>Try it</a>`}<button class="primary" onClick=${save}>Save ${names.length}</button></div></section>`}
    ${done && !names.length && html`<p role="status" class="dim">Saved. Recalls follow at once.</p>`}
    <${Loaded} from=${from} rows=${12}>${({ config, schema }) => { const wanted = schema.filter((s) => `${s.name} ${s.doc}`.toLowerCase().includes(find.toLowerCase())); const groups = [...new Set(wanted.map((s) => s.group))].sort((a, b) => order(a) - order(b));
      return groups.map((group) => html`<section><h2>${group[0].toUpperCase()}${group.slice(1)}</h2><div class="scroll"><table class="settings cards"><thead><tr><th>Setting</th><th>Value</th><th>Origin</th></tr></thead><tbody>${wanted.filter((s) => s.group === group).map((s) => html`<${Row} key=${s.name} s=${s} own=${config.overrides[s.name]} value=${config.config[s.name] ?? s.default} edit=${edits[s.name]} edited=${s.name in edits} may=${may("write")}
        change=${(v) => { setDone(false); setEdits((e) => { const { [s.name]: _, ...rest } = e; return v === undefined ? rest : { ...rest, [s.name]: v }; }); }} />`)}</tbody></table></div></section>`); }}<//>`;
}

function Row({ s, own, value, edit, edited, change, may }) {
  const now = edited ? edit ?? s.default : value;
  const label = s.name;
  const parse = (text) => { if (s.kind === "integer" || s.kind === "number") return text === "" ? null : Number(text); if (s.kind === "object" || s.kind === "array") { try { return JSON.parse(text); } catch { return text; } } return text; };
  const control = !may ? shown(now) : s.kind === "boolean" ? html`<select aria-label=${label} value=${String(now ?? "")} onChange=${(e) => change(e.target.value === "true")}><option>true</option><option>false</option></select>`
    : s.kind === "choice" ? html`<select aria-label=${label} value=${now ?? ""} onChange=${(e) => change(e.target.value)}>${s.choices.map((c) => html`<option>${c}</option>`)}</select>`
    : s.kind === "object" || s.kind === "array" ? html`<textarea rows="2" aria-label=${label} value=${now === null || now === undefined ? "" : JSON.stringify(now)} onChange=${(e) => change(parse(e.target.value))} />`
    : html`<input aria-label=${label} value=${now ?? ""} type=${s.kind === "integer" || s.kind === "number" ? "number" : "text"} step="any" min=${s.min ?? undefined} max=${s.max ?? undefined} onChange=${(e) => change(parse(e.target.value))} />`;
  const range = s.min !== null || s.max !== null ? `${s.min ?? "…"} to ${s.max ?? "…"}` : null;
  return html`<tr><td class="whole"><span class="mono">${s.name}</span><br /><span class="small dim">${s.doc}${range ? ` (${range})` : ""}${s.fixed_once_filled ? " Fixed once the bank holds memories." : ""}</span></td><td class="whole">${control}</td><td class="nowrap">${edited ? html`<span class="badge strong">changed</span>` : own !== undefined ? html`<span class="badge strong">bank</span>` : html`<span class="badge">server</span>`}<br />${may && (own !== undefined || edited) && html`<button class="link small" onClick=${() => change(edited ? undefined : null)}>${edited ? "undo" : "as the server"}</button>`}</td></tr>`;
}
