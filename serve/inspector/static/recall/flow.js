/** The rank flow: from the arms over the fusion to what is served. @module */
import { html } from "../vendor/ui.js";
import { plain } from "../format.js";
import { ARMS, Mark, colour } from "../parts/arms.js";
import { flat } from "../parts/text.js";
import { letters, useWidth } from "../parts/width.js";
import { REASONS, ordered } from "./model.js";

const TOP = 34, STEP = 22, LINEAR = 20, ARM_X = 16;
/** Places of the columns in a picture of so many pixels. */
const columns = (W) => (W >= 560 ? { ARM_GAP: 28, FUSED: 166, RANKED: 276, SERVED: 384 } : { ARM_GAP: 20, FUSED: 110, RANKED: 168, SERVED: 226 });
const FOCUS = 12, MOST = 15;

/** Ranks 1 to 20 at 22 px, the rest compressed. */
export const laneOf = (rank) => TOP + (rank <= LINEAR ? (rank - 1) * STEP : (LINEAR - 1) * STEP + 26 * Math.log2(1 + (rank - LINEAR) / 4));

export function Flow({ model, m, pinned, choose, pin }) {
  const [box, W] = useWidth(660);
  const { ARM_GAP, FUSED, RANKED, SERVED } = columns(W), bend = (RANKED - FUSED) * 0.55;
  const { fusedRank, rankedRank, servedRank, armRanks, left, explained } = model;
  const longest = Math.max(1, ...[...fusedRank.values()], explained.cut.count);
  const bottom = laneOf(Math.min(longest, 4000)) + 26;
  const none = bottom;
  const y = (rank) => (rank ? laneOf(rank) : none);
  const leaders = model.served.slice(0, FOCUS);
  const focus = [...new Set([...(m !== null && m !== undefined ? [m] : []), ...pinned, ...leaders])].slice(0, MOST);
  const ticks = (x, w, ranks) => ranks.map((r) => `M${x} ${y(r)}h${w}`).join("");
  const armTicks = ARMS.map((_, a) => [...armRanks.values()].map((r) => r[a]).filter(Boolean));
  const move = (item) => { const a = fusedRank.get(item), b = rankedRank.get(item); return a && b ? a - b : 0; };
  return html`<div ref=${box}><svg width=${W} height=${none + 14} viewBox=${`0 0 ${W} ${none + 14}`} role="group" aria-label="Rank flow: arms, fusion, ranking, what is served">
    ${ARMS.map((arm, a) => html`<g><${Mark} arm=${arm.name} x=${ARM_X + a * ARM_GAP} y=${8} /><text class="small dim" x=${ARM_X + a * ARM_GAP} y="25" text-anchor="middle">${arm.letter}</text><path d=${ticks(ARM_X + a * ARM_GAP - 6, 12, armTicks[a])} stroke=${colour(arm.name)} stroke-width="1.5" opacity=".55" fill="none" /></g>`)}
    ${[[FUSED, "fused"], [RANKED, flat(ordered(explained.formula), 18)], [SERVED, "served"]].map(([x, label]) => html`<text class="small dim" x=${x} y="14" text-anchor="middle">${label}</text>`)}
    <path d=${ticks(FUSED - 8, 16, [...fusedRank.values()])} stroke="var(--edge)" fill="none" /><path d=${ticks(RANKED - 8, 16, [...rankedRank.values()])} stroke="var(--edge)" fill="none" /><path d=${ticks(SERVED - 8, 16, [...servedRank.values()])} stroke="var(--ink)" stroke-width="1.5" fill="none" />
    <line class="axis" x1="0" x2=${SERVED + 20} y1=${none - 12} y2=${none - 12} stroke-dasharray="2 3" /><text class="small dim" x="0" y=${none + 8}>not listed</text>
    ${focus.slice().reverse().map((item) => { const chosen = item === m, held = chosen || pinned.includes(item); const f = fusedRank.get(item), r = rankedRank.get(item), s = servedRank.get(item), gone = left.get(item), ranks = armRanks.get(item) ?? [0, 0, 0, 0];
      const end = s ? `C${RANKED + bend} ${y(r)} ${SERVED - bend} ${y(s)} ${SERVED} ${y(s)}` : "";
      const d = f ? `M${FUSED} ${y(f)}${r ? `C${FUSED + bend} ${y(f)} ${RANKED - bend} ${y(r)} ${RANKED} ${y(r)}${end}` : ""}` : `M${FUSED} ${none}`;
      const moved = move(item), stop = gone && [r ? RANKED : FUSED, y(r ?? f)];
      return html`<g class="link" key=${item} tabindex="0" role="button" aria-label=${`${flat(model.memories[item].text, 60)}: ${f ? `fused ${f}` : "not fused"}, ${r ? `ranked ${r}` : "not ranked"}, ${s ? `served ${s}` : REASONS[gone?.at] ?? "not served"}`} aria-pressed=${chosen} onClick=${() => choose({ m: item })} onKeyDown=${(e) => { if (e.key === "Enter") choose({ m: item }); if (e.key === "p") { e.stopPropagation(); pin(item); } }}>
        <title>${flat(model.memories[item].text, 140)}</title><path class="hit" d=${d} />
        ${held && ARMS.map((arm, a) => ranks[a] ? html`<path d=${`M${ARM_X + a * ARM_GAP} ${y(ranks[a])}C${ARM_X + a * ARM_GAP + 40} ${y(ranks[a])} ${FUSED - 50} ${y(f)} ${FUSED} ${y(f)}`} stroke=${colour(arm.name)} stroke-dasharray=${arm.dash || null} stroke-width="1.5" fill="none" />` : null)}
        ${!held && ARMS.map((arm, a) => ranks[a] ? html`<circle cx=${ARM_X + a * ARM_GAP} cy=${y(ranks[a])} r="1.8" fill=${colour(arm.name)} />` : null)}
        <path d=${d} stroke=${chosen ? "var(--accent)" : held ? "var(--ink)" : "var(--edge)"} stroke-width=${held ? 2 : 1.2} fill="none" />
        ${Math.abs(moved) >= 5 && html`<text class="small n" x=${stop ? RANKED - 12 : RANKED + 11} text-anchor=${stop ? "end" : "start"} y=${y(r) - 3} stroke="var(--page)" stroke-width="3" paint-order="stroke">${moved > 0 ? `+${moved}` : `−${-moved}`}</text>`}
        ${stop && html`<polygon points=${`${stop[0] + 8},${stop[1] - 5} ${stop[0] + 16},${stop[1] - 5} ${stop[0] + 12},${stop[1] + 3}`} fill="var(--bad)" /><text class="small" x=${stop[0] + 20} y=${stop[1] + 3} stroke="var(--page)" stroke-width="3" paint-order="stroke">${REASONS[gone.at] ?? gone.at}</text>`}
        ${s && s <= LINEAR && html`<text class="n small" x=${SERVED + 14} y=${y(s) + 4}><tspan class="dim">${s} </tspan>${flat(model.memories[item].text, letters(W - SERVED - 34))}</text>`}</g>`; })}
  </svg></div>`;
}

export const FlowTable = ({ model, choose }) => html`<table><thead><tr><th>Memory</th>${ARMS.map((a) => html`<th class="num">${a.label}</th>`)}<th class="num">Fused</th><th class="num">Ranked</th><th class="num">Served</th></tr></thead><tbody>${
  [...model.fusedRank.keys()].slice(0, 200).map((item) => html`<tr><td style=${{ minWidth: "180px" }}><button class="quiet" style=${{ textAlign: "start" }} onClick=${() => choose({ m: item })}>${flat(model.memories[item].text, 70)}</button></td>${(model.armRanks.get(item) ?? []).map((r) => html`<td class="num">${r || "–"}</td>`)}<td class="num">${plain(model.fusedRank.get(item))}</td><td class="num">${plain(model.rankedRank.get(item))}</td><td class="num">${model.servedRank.get(item) ?? REASONS[model.left.get(item)?.at] ?? "–"}</td></tr>`)}</tbody></table>`;
