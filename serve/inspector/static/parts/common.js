/** Small pieces of all pages. @module */
import { html, useEffect, useId, useRef, useState } from "../vendor/ui.js";
import { Refused } from "../api.js";
import { href } from "../route.js";
import { ms, shortId, utc, when } from "../format.js";
import { useKeys } from "../keys.js";

export const Chip = ({ children, onRemove, label }) => html`<span class="chip">${children}${
  onRemove && html`<button aria-label=${`Remove ${label}`} onClick=${onRemove}>×</button>`}</span>`;

/** What went wrong, word for word. */
export function Problem({ error, again }) {
  const [left, setLeft] = useState(error?.retryAfter ?? 0);
  useEffect(() => {
    setLeft(error?.retryAfter ?? 0);
    if (!error?.retryAfter) return undefined;
    const timer = setInterval(() => setLeft((s) => { if (s <= 1) clearInterval(timer); return Math.max(0, s - 1); }), 1000);
    return () => clearInterval(timer);
  }, [error]);
  if (!error) return null;
  const refused = error instanceof Refused;
  if (refused && error.status === 401) return html`<div class="note warn" role="alert"><p>${error.message}</p><a href="#/key">Enter a key</a></div>`;
  return html`<div class=${`note ${refused && error.status === 501 ? "" : "bad"}`} role="alert">
    <p><bdi>${error.message}</bdi></p>
    ${refused && error.finished && html`<${Finished} finished=${error.finished} stage=${error.stage} />`}
    ${refused && error.requestId && html`<p class="small dim">Request ${error.requestId}</p>`}
    ${left > 0 && html`<p class="small dim">It may be asked again in ${left} s.</p>`}
    ${again && html`<button onClick=${again}>Try again</button>`}
  </div>`;
}

function Finished({ finished, stage }) {
  const rows = Object.entries(finished);
  return html`<table><caption class="sr">What was finished before the time was over</caption><tbody>
    ${rows.map(([name, seconds]) => html`<tr><td>${name}</td><td class="num">${ms(seconds)}</td></tr>`)}
    <tr><td><strong>${stage}</strong></td><td class="num"><span class="badge bad">time was over</span></td></tr></tbody></table>`;
}

export const Bones = ({ rows = 6, height = 28 }) => html`<div aria-hidden="true">${
  Array.from({ length: rows }, () => html`<div class="bone" style=${{ height: `${height}px`, marginBottom: "8px" }}></div>`)}</div>`;

/** A page's data in all its states. `children` is given the data. */
export function Loaded({ from, empty, children, rows }) {
  const { data, error, loading, again } = from;
  return html`<div aria-busy=${loading}>
    <${Problem} error=${error} again=${again} />
    ${data === null ? (loading ? html`<${Bones} rows=${rows} /><p class="sr" role="status">Loading</p>` : null)
      : html`<div class=${loading ? "stale" : ""}>${empty?.(data) || children(data)}</div>`}
  </div>`;
}

export const Empty = ({ children }) => html`<div class="empty">${children}</div>`;

export const Time = ({ value }) => html`<time datetime=${value ?? ""} title=${utc(value)} class="nowrap">${when(value)}</time>`;

/** An id, shortened; copied whole. */
export function Id({ value }) {
  const [done, setDone] = useState(false);
  const copy = async (event) => { event.stopPropagation(); await navigator.clipboard?.writeText(value).catch(() => {}); setDone(true); setTimeout(() => setDone(false), 1500); };
  return html`<button class="quiet mono" title=${value} aria-label=${`Copy id ${value}`} onClick=${copy}>${done ? "copied" : shortId(value)}</button>`;
}

/** Sentence, picture, table, JSON: one after the other. */
export function Pictured({ said, picture, table, json, label }) {
  const [view, setView] = useState("picture");
  useKeys({ t: () => setView((v) => (v === "picture" ? "table" : "picture")) });
  const views = [["picture", "Picture"], ["table", "Table"], ["json", "JSON"]];
  return html`<figure><figcaption><span class="said">${said}</span><span class="views" role="group" aria-label=${`View of ${label}`}>
    ${views.map(([name, shown]) => html`<button aria-pressed=${view === name} onClick=${() => setView(name)}>${shown}</button>`)}</span></figcaption>
    ${view === "picture" ? picture : view === "table" ? html`<div class="scroll" tabindex="0" role="region" aria-label=${`Table of ${label}`}>${table}</div>` : html`<pre tabindex="0" aria-label=${`JSON of ${label}`}>${JSON.stringify(json, null, 1).slice(0, 200_000)}</pre>`}
  </figure>`;
}

export function Field({ label, error, children, hint }) {
  return html`<label class="field"><span>${label}</span>${children}${hint && html`<small class="dim">${hint}</small>`}${error && html`<span class="field-error" role="alert">${error}</span>`}</label>`;
}

export const Check = ({ label, value, onChange }) => html`<label class="check"><input type="checkbox" checked=${value} onChange=${(e) => onChange(e.target.checked)} />${label}</label>`;

/** Asks once before something that cannot be taken back. */
export function Sure({ label, sentence, act, kind = "" }) {
  const dialog = useRef(null);
  const [error, setError] = useState(null);
  const [reason, setReason] = useState("");
  const id = useId();
  const done = async () => { try { await act(reason); dialog.current.close(); } catch (failed) { setError(failed); } };
  return html`<button class=${kind} onClick=${() => { setError(null); dialog.current.showModal(); }}>${label}</button>
    <dialog ref=${dialog} aria-labelledby=${id}><h2 id=${id}>${label}</h2><p>${sentence}</p>
      ${label === "Invalidate" && html`<${Field} label="Reason"><input value=${reason} onInput=${(e) => setReason(e.target.value)} /><//>`}
      <${Problem} error=${error} />
      <div class="row end"><button onClick=${() => dialog.current.close()}>Keep</button><button class="primary" onClick=${done}>${label}</button></div></dialog>`;
}

export const Link = ({ to, params, children, ...rest }) => html`<a href=${href(to, params)} ...${rest}>${children}</a>`;

/** A download of text that is made here. */
export function save(name, content, type = "application/json") {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  return html`<button onClick=${async () => { await navigator.clipboard?.writeText(text).catch(() => {}); setDone(true); setTimeout(() => setDone(false), 1500); }}>${done ? "Copied" : label}</button>`;
}
