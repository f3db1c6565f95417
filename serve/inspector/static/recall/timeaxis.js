/** What the time words meant: underlined in the question, and on an axis. @module */
import { html } from "../vendor/ui.js";
import { dayOf, exact, plural, utc } from "../format.js";
import { Text, flat } from "../parts/text.js";
import { useWidth } from "../parts/width.js";
import { REASONS } from "./model.js";

const LEFT = 8, RIGHT = 8, ROWS = 9;
const micros = (iso) => (iso ? new Date(iso).getTime() : null);

/** The question with its time words marked; places count characters. */
export function Question({ text, time }) {
  const letters = Array.from(text), found = [...time.found].sort((a, b) => a.start - b.start), parts = [];
  let at = 0;
  for (const one of found) {
    if (one.start < at) continue;
    parts.push(html`<${Text} value=${letters.slice(at, one.start).join("")} />`, html`<mark class=${one.used ? "used" : ""} title=${`${one.rule}${one.used ? ", used" : ""}`}><${Text} value=${letters.slice(one.start, one.end).join("")} /></mark>`);
    at = one.end;
  }
  parts.push(html`<${Text} value=${letters.slice(at).join("")} />`);
  return html`<p class="question" dir="auto" style=${{ fontSize: "16px", lineHeight: "28px" }}>${parts}</p>`;
}

export function said(time) {
  if (!time.window) return `No window: ${time.why_none}.`;
  const used = time.found.find((f) => f.used);
  const from = { request: "the request gives it", event: `the event “${time.event?.phrase}”`, words: used ? `“${used.text}” (rule ${used.rule})` : `rule ${time.rule}` }[time.from];
  return `${dayOf(time.window.start)} – ${dayOf(time.window.end)}: ${from}; it ${time.mode === "filter" ? "is a filter" : "ranks, and hides nothing"}.`;
}

export function TimeAxis({ model, m, choose }) {
  const { time } = model.explained;
  const [box, W] = useWidth(480);
  const dated = [...model.fusedRank.keys()].slice(0, 300).map((item) => { const x = model.memories[item]; return { item, at: micros(x.start ?? x.mentioned), end: micros(x.end), served: model.servedRank.has(item) }; });
  const known = dated.filter((d) => d.at !== null), undated = dated.filter((d) => d.at === null);
  const marks = [micros(time.window?.start), micros(time.window?.end), micros(time.reference_time), micros(time.as_of)].filter((v) => v !== null);
  const all = [...known.map((d) => d.at), ...marks];
  if (!all.length) return html`<p class="empty">Nothing here has a date.</p>`;
  let low = Math.min(...all), high = Math.max(...all);
  const sorted = known.map((d) => d.at).sort((a, b) => a - b);
  if (sorted.length > 20) low = Math.min(sorted[Math.floor(sorted.length * 0.05)], ...marks);
  const pad = Math.max((high - low) * 0.04, 86_400_000); low -= pad; high += pad;
  const x = (t) => LEFT + ((Math.max(low, Math.min(high, t)) - low) / (high - low)) * (W - LEFT - RIGHT);
  const place = new Map(); const lanes = Array(ROWS).fill(-Infinity);
  for (const d of [...known].sort((a, b) => a.at - b.at)) { const px = x(d.at); let lane = lanes.findIndex((end) => px - end > 9); if (lane < 0) lane = lanes.indexOf(Math.min(...lanes)); lanes[lane] = px; place.set(d.item, lane); }
  const rows = 1 + Math.max(0, ...place.values());
  const H = 58 + rows * 11, axis = H - 18;
  const [a, b] = [micros(time.window?.start), micros(time.window?.end)];
  const years = []; for (let year = new Date(low).getUTCFullYear() + 1; year <= new Date(high).getUTCFullYear(); year += Math.max(1, Math.ceil((high - low) / 31_557_600_000 / 8))) years.push(Date.UTC(year, 0, 1));
  return html`<div ref=${box}><svg width=${W} height=${H + (undated.length ? 22 : 0)} viewBox=${`0 0 ${W} ${H + (undated.length ? 22 : 0)}`} role="group" aria-label="Candidates over time">
    ${time.window && html`<rect x=${x(a ?? low)} width=${Math.max(2, x(b ?? high) - x(a ?? low))} y="16" height=${axis - 16} fill="var(--mark)" /><path d=${`M${x(a ?? low)} 16V${axis}M${Math.max(x(a ?? low) + 2, x(b ?? high))} 16V${axis}`} stroke="var(--temporal)" fill="none" /><text class="small" x=${Math.min(W - 4, Math.max(4, (x(a ?? low) + x(b ?? high)) / 2))} y="12" text-anchor=${x(a ?? low) > W - 160 ? "end" : x(b ?? high) < 160 ? "start" : "middle"}>${dayOf(time.window.start)} – ${dayOf(time.window.end)}</text>`}
    <line class="axis" x1=${LEFT} x2=${W - RIGHT} y1=${axis} y2=${axis} />${years.map((t) => html`<line class="axis" x1=${x(t)} x2=${x(t)} y1=${axis} y2=${axis + 4} /><text class="small dim" x=${x(t)} y=${axis + 15} text-anchor="middle">${new Date(t).getUTCFullYear()}</text>`)}
    ${[["reference_time", time.reference_time, "now"], ["as_of", time.as_of, "as of"]].map(([, t, label]) => t && html`<line class="ink" x1=${x(micros(t))} x2=${x(micros(t))} y1="30" y2=${axis} stroke-dasharray=${label === "now" ? "2 2" : "6 2"} /><text class="small dim" x=${x(micros(t))} y="27" text-anchor=${x(micros(t)) < 24 ? "start" : x(micros(t)) > W - 24 ? "end" : "middle"}>${label}</text>`)}
    ${[...known].sort((a, b) => (a.item === m) - (b.item === m)).map((d) => html`<circle key=${d.item} class="link" tabindex=${d.served || d.item === m ? 0 : -1} role="button" aria-label=${`${dayOf(model.memories[d.item].start ?? model.memories[d.item].mentioned)}: ${flat(model.memories[d.item].text, 60)}`} onClick=${() => choose({ m: d.item })} onKeyDown=${(e) => e.key === "Enter" && choose({ m: d.item })} cx=${x(d.at)} cy=${axis - 8 - place.get(d.item) * 11} r=${d.item === m ? 5.5 : 4} fill=${d.item === m ? "var(--accent)" : d.served ? "var(--ink)" : "var(--page)"} stroke=${d.item === m ? "var(--accent)" : d.served ? "var(--ink)" : "var(--edge)"} stroke-width="1.3"><title>${flat(model.memories[d.item].text, 120)}</title></circle>`)}
    ${undated.length > 0 && html`<text class="small dim" x=${LEFT} y=${H + 14}>undated</text>${undated.slice(0, Math.floor((W - 80) / 12)).map((d, i) => html`<circle cx=${LEFT + 64 + i * 12} cy=${H + 10} r="4" fill=${d.served ? "var(--ink)" : "var(--page)"} stroke="var(--edge)" />`)}`}
  </svg><p class="small dim">Filled: served. ${plural(undated.length, "candidate")} without a date.${time.event ? html` The event is memory <button class="link" onClick=${() => choose({ m: time.event.m })}>${flat(model.memories[time.event.m]?.text ?? "", 60)}</button> (confidence ${time.event.confidence.toFixed(2)}).` : ""}</p></div>`;
}

export const TimeTable = ({ time }) => html`<table><thead><tr><th>Words</th><th>Rule</th><th>Means</th><th class="num">Sure</th><th>Used</th></tr></thead><tbody>${time.found.map((f) => html`<tr><td><${Text} value=${f.text} /></td><td>${f.rule}</td><td class="nowrap" title=${`${utc(f.window?.start)} – ${utc(f.window?.end)}`}>${dayOf(f.window?.start)} – ${dayOf(f.window?.end)}</td><td class="num">${exact(f.confidence)}</td><td>${f.used ? "yes" : "no"}</td></tr>`)}${!time.found.length && html`<tr><td colspan="5" class="dim">${time.why_none ?? "The request gives the window."}</td></tr>`}</tbody></table>`;
