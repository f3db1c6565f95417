/** The last recalls of this process: how slow, and where. @module */
import { html } from "../vendor/ui.js";
import { get } from "../api.js";
import { useLoad } from "../load.js";
import { plain } from "../format.js";
import { Empty, Link, Loaded, Pictured, Time } from "../parts/common.js";
import { Name } from "../parts/text.js";

const STAGE_W = 420;

export function Activity() {
  const from = useLoad((signal) => get("v1/default/activity", { signal }), []);
  return html`<div class="row"><h1 class="grow">Activity</h1><button onClick=${from.again}>Read again</button></div>
  <${Loaded} from=${from} empty=${(a) => !a.recalls && html`<${Empty}><p>This process has answered no recall of yours since <${Time} value=${a.since} />.</p><//>`}>${(a) => html`<p class="dim">The last ${plain(a.recalls)} recalls of one of ${plain(a.process[1])} ${a.process[1] === 1 ? "process" : "processes"}, since <${Time} value=${a.since} />. What was asked is not kept.</p>
    <dl class="facts"><div><dt>Half are faster than</dt><dd>${a.total.p50_ms} ms</dd></div><div><dt>99 of 100</dt><dd>${a.total.p99_ms} ms</dd></div><div><dt>Degraded</dt><dd>${plain(a.degraded)}</dd></div><div><dt>Refused</dt><dd>${plain(a.refused)}</dd></div></dl>
    <${Pictured} label="stages" json=${a} said="Each stage: a bar to its median, a line to its 99th percentile." picture=${html`<${Stages} stages=${a.stages} />`} table=${html`<${StageTable} stages=${a.stages} />`} />
    <h2>Slowest</h2><div class="scroll"><table><thead><tr><th>When</th><th>Bank</th><th class="num">ms</th><th class="num">Results</th><th>Longest stage</th></tr></thead><tbody>${a.slow.map((s) => { const [name, ms] = Object.entries(s.stages).filter(([n]) => n !== "parallel_retrieval").sort((x, y) => y[1] - x[1])[0] ?? ["–", 0]; return html`<tr><td><${Time} value=${s.at} /></td><td><${Link} to=${["b", s.bank_id]}><${Name} value=${s.bank_id} /><//></td><td class="num">${s.ms}</td><td class="num">${plain(s.results)}</td><td>${name} ${ms} ms</td></tr>`; })}</tbody></table></div>`}<//>`;
}

const Stages = ({ stages }) => { const rows = Object.entries(stages).sort((a, b) => b[1].p50_ms - a[1].p50_ms).slice(0, 16); const most = Math.max(0.001, ...rows.map(([, s]) => s.p99_ms)); const x = (v) => (v / most) * STAGE_W;
  return html`<svg viewBox=${`0 0 720 ${rows.length * 22 + 4}`} role="img" aria-label="Stages by their time">${rows.map(([name, s], i) => html`<g transform=${`translate(0 ${i * 22})`}><text x="0" y="15">${name}</text><rect x="200" y="6" width=${Math.max(1, x(s.p50_ms))} height="10" fill="var(--accent)" opacity=".6" /><line class="ink" x1=${200 + x(s.p50_ms)} x2=${200 + x(s.p99_ms)} y1="11" y2="11" /><line class="ink" x1=${200 + x(s.p99_ms)} x2=${200 + x(s.p99_ms)} y1="7" y2="15" /><text class="dim n" x="716" y="15" text-anchor="end">${s.p50_ms} / ${s.p99_ms} ms</text></g>`)}</svg>`; };
const StageTable = ({ stages }) => html`<table><thead><tr><th>Stage</th><th class="num">p50 ms</th><th class="num">p99 ms</th></tr></thead><tbody>${Object.entries(stages).map(([name, s]) => html`<tr><td>${name}</td><td class="num">${s.p50_ms}</td><td class="num">${s.p99_ms}</td></tr>`)}</tbody></table>`;
