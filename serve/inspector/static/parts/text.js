/** Text that others wrote: in its own direction, with what would change the page's shown as boxes. @module */
import { html, useState } from "../vendor/ui.js";

// Controls, bidi overrides and isolates, and signs that nobody sees. Joiners stay: scripts need them.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]/g;
const FIRST = 400, STEP = 20_000;

/** The text for places that hold no boxes (pictures, attributes): such signs become a middle dot. */
export const flat = (text, most = 80) => {
  const short = (text ?? "").slice(0, most + 1).replace(UNSEEN, "·").replace(/\s+/g, " ");
  return short.length > most ? `${short.slice(0, most - 1)}…` : short;
};

function boxed(text) {
  const found = [];
  let last = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > last) found.push(text.slice(last, match.index));
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    found.push(html`<span class="ctl" title=${`U+${code}`}>${code}</span>`);
    last = match.index + 1;
    if (found.length > 2_000) break;
  }
  found.push(text.slice(last));
  return found;
}

/** A memory's text: three lines, then more. `cut`: the server sent only its beginning; `to`: where it leads, an address of this page. */
export function Text({ value, cut = false, clamp = false, to = null }) {
  const [most, setMost] = useState(FIRST);
  const text = value ?? "";
  const shown = text.slice(0, most);
  const more = text.length > most;
  const said = html`<bdi dir="auto" class=${`text ${clamp && most === FIRST ? "clamp" : ""}`}>${boxed(shown)}${more || cut ? "…" : ""}</bdi>`;
  return html`${to ? html`<a class="textlink" href=${to}>${said}</a>` : said}${
    more && html`<button class="link small" onClick=${(e) => { e.stopPropagation(); setMost(most === FIRST ? STEP : most + STEP); }}>more</button>`}`;
}

/** A name, tag or id: one line. */
export const Name = ({ value, mono = false }) => html`<bdi dir="auto" class=${mono ? "mono" : ""}>${boxed((value ?? "").slice(0, 300))}</bdi>`;
