/** Entities and their company, laid out before it is shown, then still. @module */
import { forceCenter, forceCollide, forceLink, forceManyBody, forceSimulation, html, useMemo, useState } from "../vendor/ui.js";
import { plain } from "../format.js";
import { flat } from "../parts/text.js";

const W = 720, H = 480, NODES = 300, EDGES = 600;

function settled(graph) {
  const nodes = graph.nodes.slice(0, NODES).map(({ data }) => ({ ...data }));
  const known = new Set(nodes.map((n) => n.id));
  const links = graph.edges.map(({ data }) => ({ ...data })).filter((e) => known.has(e.source) && known.has(e.target)).slice(0, EDGES);
  const most = Math.max(1, ...nodes.map((n) => n.mentionCount));
  for (const node of nodes) node.r = 4 + 10 * Math.sqrt(node.mentionCount / most);
  const simulation = forceSimulation(nodes)
    .force("link", forceLink(links).id((n) => n.id).distance(64).strength((e) => Math.min(0.6, 0.1 + e.weight / 20)))
    .force("charge", forceManyBody().strength(-140)).force("collide", forceCollide((n) => n.r + 12)).force("center", forceCenter(0, 0)).stop();
  const steps = Math.min(300, Math.max(60, 60_000 / Math.max(1, nodes.length + links.length)));
  for (let i = 0; i < steps; i += 1) simulation.tick();
  const xs = nodes.map((n) => n.x), ys = nodes.map((n) => n.y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = Math.min((W - 140) / Math.max(1, right - left), (H - 60) / Math.max(1, bottom - top), 2);
  for (const node of nodes) { node.x = W / 2 + (node.x - (left + right) / 2) * scale; node.y = H / 2 + (node.y - (top + bottom) / 2) * scale; }
  return { nodes, links };
}

export function Network({ graph, chosen, onChoose }) {
  const { nodes, links } = useMemo(() => settled(graph), [graph]);
  const [over, setOver] = useState(null);
  const focus = over ?? chosen;
  const near = new Set(focus ? links.flatMap((e) => (e.source.id === focus ? [e.target.id] : e.target.id === focus ? [e.source.id] : [])) : []);
  const labelled = new Set(nodes.slice(0, 24).map((n) => n.id));
  return html`<svg viewBox=${`0 0 ${W} ${H}`} role="group" aria-label="Entities; those that are mentioned together are joined">
    ${links.map((e) => html`<line x1=${e.source.x} y1=${e.source.y} x2=${e.target.x} y2=${e.target.y} stroke=${focus && (e.source.id === focus || e.target.id === focus) ? "var(--accent)" : "var(--line)"} stroke-width=${Math.min(4, 0.8 + Math.log2(e.weight))} />`)}
    ${nodes.map((n) => html`<g class="link" tabindex="0" role="button" aria-label=${`${flat(n.label)}, ${plain(n.mentionCount)} mentions`} aria-pressed=${n.id === chosen} onClick=${() => onChoose(n.id)} onKeyDown=${(e) => e.key === "Enter" && onChoose(n.id)}
        onPointerEnter=${() => setOver(n.id)} onPointerLeave=${() => setOver(null)} onFocus=${() => setOver(n.id)} onBlur=${() => setOver(null)}>
      <circle class="hit" cx=${n.x} cy=${n.y} r=${n.r + 3} /><circle cx=${n.x} cy=${n.y} r=${n.r} fill=${n.id === focus ? "var(--accent)" : near.has(n.id) ? "var(--mark)" : "var(--panel)"} stroke=${n.id === focus || near.has(n.id) ? "var(--accent)" : "var(--edge)"} stroke-width="1.5" />
      ${(labelled.has(n.id) || near.has(n.id) || n.id === focus) && html`<text class="small" x=${n.x} y=${n.y + n.r + 12} text-anchor="middle" stroke="var(--page)" stroke-width="3" paint-order="stroke">${flat(n.label, 28)}</text>`}</g>`)}
  </svg>`;
}
