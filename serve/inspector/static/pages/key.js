/** The key: kept in this tab, sent in a header, shown nowhere. @module */
import { html, useState } from "../vendor/ui.js";
import { get, key } from "../api.js";
import { go } from "../route.js";
import { Problem } from "../parts/common.js";

export function KeyPage({ onKey, who }) {
  const [error, setError] = useState(null);
  const [typed, setTyped] = useState("");
  const enter = async (event) => {
    event.preventDefault();
    const before = key.get();
    key.set(typed.trim());
    try {
      await get("v1/default/whoami");
      setTyped("");
      onKey();
      const back = sessionStorage.getItem("fourfold.back") || "#/";
      sessionStorage.removeItem("fourfold.back");
      go(back);
    } catch (failed) { key.set(before === typed.trim() ? "" : before); setError(failed); }
  };
  return html`<h1>API key</h1>
    <p>${who && !who.key_required ? "This server asks for no key." : "This server asks for a key. It stays in this tab, is sent to this server alone, and is part of no address and no file."}</p>
    ${key.get() && html`<p>A key is in use${who?.tenant ? html` for the tenant <bdi><strong>${who.tenant}</strong></bdi>` : ""}. <button onClick=${() => { key.set(""); onKey(); go("#/"); }}>Forget it</button></p>`}
    <form onSubmit=${enter} class="row"><label class="grow"><span class="sr">API key</span><input type="password" autocomplete="off" spellcheck=${false} placeholder="ff_…" value=${typed} onInput=${(e) => setTyped(e.target.value)} data-find="" /></label>
    <button class="primary" disabled=${!typed.trim()}>Use this key</button></form>
    ${error && error.status === 401 ? html`<div class="note bad" role="alert"><p>${error.message}</p></div>` : html`<${Problem} error=${error} />`}`;
}
