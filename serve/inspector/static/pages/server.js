/** Health, models, build, who asks. @module */
import { html } from "../vendor/ui.js";
import { get } from "../api.js";
import { useLoad } from "../load.js";
import { Loaded } from "../parts/common.js";

export function Server({ who }) {
  const from = useLoad((signal) => Promise.all([get("health", { signal }), get("version", { signal })]).then(([health, version]) => ({ health, version })), []);
  return html`<h1>Server</h1><${Loaded} from=${from}>${({ health, version }) => html`<p><span class=${`badge ${health.status === "healthy" ? "strong" : "bad"}`}>${health.status}</span> <span class="dim">database ${health.database}</span></p>
    <dl class="pairs"><dt>API</dt><dd>${version.api_version}</dd>${who && html`<dt>Build</dt><dd>${who.build}</dd><dt>Tenant</dt><dd><bdi>${who.tenant ?? "–"}</bdi>${who.key_id && html` <span class="mono dim">key ${who.key_id}</span>`}</dd><dt>May</dt><dd>${who.scopes.join(", ")}</dd><dt>Limits</dt><dd>${Object.keys(who.limits).length ? Object.entries(who.limits).map(([k, v]) => html`<div class="mono">${k} = ${v}</div>`) : "the server's"}</dd>${Object.entries(who.models).map(([k, v]) => html`<dt>${k}</dt><dd class="mono">${v}</dd>`)}`}</dl>
    <h2>Features</h2><ul class="features">${Object.entries(version.features).map(([name, on]) => html`<li class=${on ? "" : "dim"}><span aria-hidden="true">${on ? "✓" : "–"}</span> ${name.replaceAll("_", " ")}<span class="sr">${on ? " on" : " off"}</span></li>`)}</ul>
    ${who?.docs && html`<h2>More</h2><p><a href="../docs">The API’s description</a></p>`}`}<//>`;
}
