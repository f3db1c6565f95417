/** What changed, newest first. @module */
import { html, useState } from "../vendor/ui.js";
import { bankPath, get, query } from "../api.js";
import { useLoad } from "../load.js";
import { go, href } from "../route.js";
import { Empty, Field, Link, Loaded, Time } from "../parts/common.js";
import { Name, Text } from "../parts/text.js";

const KINDS = ["written", "edited", "remade", "invalidated", "document", "operation"];

export function Changes({ bank, params }) {
  const [cursors, setCursors] = useState([]);
  const cursor = cursors.at(-1), kind = params.kind ?? "";
  const from = useLoad((signal) => get(bankPath(bank, `changes${query({ kind, cursor, limit: 50 })}`), { signal }), [bank, kind, cursor]);
  const to = (c) => (c.kind === "document" ? ["b", bank, "documents", c.id] : c.kind === "operation" ? ["b", bank, "operations"] : ["b", bank, "m", c.id]);
  return html`<h1>Changes</h1><div class="row"><${Field} label="Kind"><select value=${kind} onChange=${(e) => { setCursors([]); go(href(["b", bank, "changes"], { kind: e.target.value }), { replace: true }); }}><option value="">all</option>${KINDS.map((k) => html`<option>${k}</option>`)}</select><//></div>
    <${Loaded} from=${from} empty=${(d) => !d.items.length && html`<${Empty}>Nothing of this kind has happened.<//>`}>${(d) => html`<div class="scroll"><table class="cards"><thead><tr><th>When</th><th>What</th><th></th></tr></thead><tbody>${d.items.map((c) => html`<tr><td><${Time} value=${c.at} /></td><td><${Link} to=${to(c)}>${c.kind}<//></td><td class="whole">${c.kind === "document" && html`<${Name} value=${c.id} /> `}<${Text} value=${c.text} />${c.was && html` <span class="dim">(<${Text} value=${c.was} />)</span>`}</td></tr>`)}</tbody></table></div>
    <div class="row end"><button disabled=${!cursors.length} onClick=${() => setCursors(cursors.slice(0, -1))}>Newer</button><button disabled=${!d.next} onClick=${() => setCursors([...cursors, d.next])}>Older</button></div>`}<//>`;
}
