/** What the budget of tokens held, and what did not fit. @module */
import { html } from "../vendor/ui.js";
import { plain, plural } from "../format.js";
import { flat } from "../parts/text.js";
import { useWidth } from "../parts/width.js";

export function tokensSaid(model) {
  const { tokens } = model.explained;
  const cut = [...model.left.values()].filter((l) => l.at === "tokens");
  const first = cut[0];
  return `${plain(tokens.used)} of ${plain(tokens.max)} tokens${first ? `; ${plural(cut.length, "memory", "memories")} did not fit, the first needs ${plain(first.needs - first.room)} more` : "; everything fitted"}.`;
}

export function Tokens({ model, m, choose }) {
  const { tokens } = model.explained;
  const [box, W] = useWidth(480);
  const cut = [...model.left.values()].filter((l) => l.at === "tokens").slice(0, 40);
  const beyond = cut.reduce((n, l) => n + l.needs, 0);
  const whole = Math.max(tokens.max, tokens.used) + Math.min(beyond, Math.max(tokens.max, tokens.used) * 0.5);
  const x = (n) => (n / Math.max(1, whole)) * W;
  let at = 0;
  const pieces = model.served.map((item) => { const n = model.memories[item].tokens, from = at; at += n; return { item, n, from }; });
  const rest = []; let end = Math.max(tokens.max, tokens.used);
  for (const l of cut) { rest.push({ item: l.m, n: l.needs, from: end, more: l.needs - l.room }); end += l.needs; if (end > whole) break; }
  const one = (p, fill, label) => html`<rect key=${p.item} class="link" tabindex="0" role="button" aria-label=${label} onClick=${() => choose({ m: p.item })} onKeyDown=${(e) => e.key === "Enter" && choose({ m: p.item })} x=${x(p.from)} y="18" width=${Math.max(1, Math.min(x(p.n), W - x(p.from)) - 1)} height="26" fill=${fill} stroke=${p.item === m ? "var(--accent)" : "none"} stroke-width="2"><title>${label}</title></rect>`;
  const chosen = model.left.get(m);
  return html`<div ref=${box}><svg width=${W} height="62" viewBox=${`0 0 ${W} 62`} role="group" aria-label="Tokens by result"><defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="6" stroke="var(--edge)" stroke-width="2" /></pattern></defs>
    ${pieces.map((p, i) => one(p, i % 2 ? "var(--grey2)" : "var(--accent)", `${i + 1}: ${p.n} tokens, ${flat(model.memories[p.item].text, 60)}`))}
    <rect x=${x(tokens.used)} y="18" width=${Math.max(0, x(tokens.max) - x(tokens.used))} height="26" fill="none" stroke="var(--line)" />
    ${rest.map((p) => one(p, "url(#hatch)", `needs ${p.more} more: ${flat(model.memories[p.item].text, 60)}`))}
    <line class="ink" x1=${x(tokens.max)} x2=${x(tokens.max)} y1="10" y2="50" /><text class="small n" x=${Math.min(W - 2, x(tokens.max))} y="60" text-anchor="end">${plain(tokens.max)}</text><text class="small dim n" x="0" y="60">0</text></svg>
    ${chosen?.at === "tokens" && html`<p>Cut by tokens: needs ${plain(chosen.needs)}, ${plain(chosen.room)} left. <strong>Needs ${plain(chosen.needs - chosen.room)} more.</strong></p>`}</div>`;
}

export const TokenTable = ({ model, choose }) => html`<table><thead><tr><th class="num">Place</th><th>Memory</th><th class="num">Tokens</th><th></th></tr></thead><tbody>${model.served.map((item, i) => html`<tr><td class="num">${i + 1}</td><td style=${{ minWidth: "180px" }}><button class="quiet" style=${{ textAlign: "start" }} onClick=${() => choose({ m: item })}>${flat(model.memories[item].text, 80)}</button></td><td class="num">${plain(model.memories[item].tokens)}</td><td>served</td></tr>`)}${[...model.left.values()].filter((l) => l.at === "tokens").slice(0, 60).map((l) => html`<tr><td class="num">–</td><td><button class="quiet" style=${{ textAlign: "start" }} onClick=${() => choose({ m: l.m })}>${flat(model.memories[l.m].text, 80)}</button></td><td class="num">${plain(l.needs)}</td><td class="nowrap">needs ${plain(l.needs - l.room)} more</td></tr>`)}</tbody></table>`;
