/** A recall that was saved as a file: shown without a bank and without a network. @module */
import { html, useState } from "../vendor/ui.js";
import { Shown } from "../recall/shown.js";

export function Open() {
  const [saved, setSaved] = useState(null);
  const [error, setError] = useState("");
  const [at, setAt] = useState({ m: null, v: "score" });
  const read = async (file) => {
    try {
      const found = JSON.parse(await file.text());
      if (found?.fourfold !== "recall" || !found.explained?.memories || !found.request) throw new Error("not a saved recall");
      setSaved(found); setError("");
    } catch (failed) { setSaved(null); setError(`${file.name} holds no saved recall: ${failed.message}`); }
  };
  return html`<h1>Open a saved recall</h1><p class="dim">It is read in this tab and sent nowhere.</p>
    <label class="field"><span>File</span><input type="file" accept="application/json,.json" onChange=${(e) => e.target.files[0] && read(e.target.files[0])} /></label>
    ${error && html`<div class="note bad" role="alert"><p><bdi>${error}</bdi></p></div>`}
    ${saved && html`<${Shown} bank=${saved.bank} request=${saved.request} explained=${saved.explained} at=${at} choose=${(changes) => setAt((a) => ({ ...a, ...changes }))} offline />`}`;
}
