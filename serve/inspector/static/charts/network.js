/** Entities and their company, laid out before it is shown, then still. @module */
import { forceCollide, forceLink, forceManyBody, forceSimulation, html, useMemo, useState } from "../vendor/ui.js";
import { plain } from "../format.js";
import { flat } from "../parts/text.js";
import { useWidth } from "../parts/width.js";

const NODES = 300, EDGES = 600, LABEL = 28, LETTER = 6, PULL = 0.12;

/** Places of the entities around (0, 0), and the lines between them. */
function settled(graph) {
  const nodes = graph.nodes.slice(0, NODES).map(({ data }) => ({ ...data }));
  const known = new Set(nodes.map((n) => n.id));
  const links = graph.edges.map(({ data }) => ({ ...data })).filter((e) => known.has(e.source) && known.has(e.target)).slice(0, EDGES);
  const most = Math.max(1, ...nodes.map((n) => n.mentionCount));
  for (const node of nodes) node.r = 4 + 10 * Math.sqrt(node.mentionCount / most);
  const pull = (alpha) => { for (const node of nodes) { node.vx -= node.x * PULL * 0.7 * alpha; node.vy -= node.y * PULL * alpha; } };  // those without company stay near, too
  const simulation = forceSimulation(nodes)
    .force("link", forceLink(links).id((n) => n.id).distance(110).strength((e) => Math.min(0.3, 0.04 + e.weight / 60)))
    .force("charge", forceManyBody().strength(-520)).force("collide", forceCollide((n) => n.r + 16)).force("pull", pull).stop();
  const steps = Math.min(300, Math.max(60, 60_000 / Math.max(1, nodes.length + links.length)));
  for (let i = 0; i < steps; i += 1) simulation.tick();
  return { nodes, links };
}

/** The layout in a picture of this size, and which names have room in it, the most mentioned first. */
function placed({ nodes, links }, W, H, first) {
  const xs = nodes.map((n) => n.x), ys = nodes.map((n) => n.y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const across = Math.min((W - 96) / Math.max(1, right - left), 2), down = Math.min((H - 64) / Math.max(1, bottom - top), 2);
  const small = Math.min(1, Math.sqrt((W * H) / nodes.length) / 56);
  const moved = nodes.map((n) => ({ id: n.id, label: n.label, mentionCount: n.mentionCount, r: Math.max(3, n.r * small), x: W / 2 + (n.x - (left + right) / 2) * across, y: H / 2 - 8 + (n.y - (top + bottom) / 2) * down }));
  forceSimulation(moved).force("collide", forceCollide((n) => n.r + 4).iterations(3)).stop().tick(40);  // nobody covers another
  const inside = (value, r, most) => Math.max(r + 4, Math.min(most - r - 4, value));
  const at = new Map(moved.map((n) => [n.id, { ...n, x: inside(n.x, n.r, W), y: inside(n.y, n.r, H - 12) }]));
  const boxes = [...at.values()].map((n) => [n.x - n.r, n.y - n.r, n.x + n.r, n.y + n.r]);
  const labels = new Set();
  for (const node of [...at.values()].sort((a, b) => (b.id === first) - (a.id === first) || b.mentionCount - a.mentionCount)) {
    const half = (Math.min(LABEL, node.label.length) * LETTER) / 2, box = [node.x - half, node.y + node.r + 2, node.x + half, node.y + node.r + 15];
    if (box[0] < 0 || box[2] > W || boxes.some((b) => b[0] < box[2] && b[2] > box[0] && b[1] < box[3] && b[3] > box[1])) continue;
    boxes.push(box);
    labels.add(node.id);
  }
  return { at, labels, links };
}

export function Network({ graph, chosen, onChoose }) {
  const [box, W] = useWidth(560);
  const H = Math.round(Math.min(560, Math.max(320, W * 0.8)));
  const layout = useMemo(() => settled(graph), [graph]);
  const { at, labels, links } = useMemo(() => placed(layout, W, H, chosen), [layout, W, chosen]);
  const [over, setOver] = useState(null);
  const focus = over ?? chosen;
  const touches = (e) => focus && (e.source.id === focus || e.target.id === focus);
  const near = new Set(links.filter(touches).map((e) => (e.source.id === focus ? e.target.id : e.source.id)));
  const few = near.size <= 12;
  const line = (e) => { const a = at.get(e.source.id), b = at.get(e.target.id); return html`<line x1=${a.x} y1=${a.y} x2=${b.x} y2=${b.y} stroke=${touches(e) ? "var(--accent)" : "var(--line)"} stroke-width=${Math.min(4, 0.8 + Math.log2(e.weight))} />`; };
  const named = (n) => n.id === focus || labels.has(n.id) || (over !== null && few && near.has(n.id));
  return html`<div ref=${box}><svg width=${W} height=${H} viewBox=${`0 0 ${W} ${H}`} role="group" aria-label="Entities; those that are mentioned together are joined">
    ${links.filter((e) => !touches(e)).map(line)}${links.filter(touches).map(line)}
    ${[...at.values()].map((n) => html`<g class="link" tabindex="0" role="button" aria-label=${`${flat(n.label)}, ${plain(n.mentionCount)} mentions`} aria-pressed=${n.id === chosen} onClick=${() => onChoose(n.id)} onKeyDown=${(e) => e.key === "Enter" && onChoose(n.id)}
        onPointerEnter=${() => setOver(n.id)} onPointerLeave=${() => setOver(null)} onFocus=${() => setOver(n.id)} onBlur=${() => setOver(null)}>
      <title>${flat(n.label, 120)}</title><circle class="hit" cx=${n.x} cy=${n.y} r=${n.r + 3} /><circle cx=${n.x} cy=${n.y} r=${n.r} fill=${n.id === focus ? "var(--accent)" : near.has(n.id) ? "var(--mark)" : "var(--panel)"} stroke=${n.id === focus || near.has(n.id) ? "var(--accent)" : "var(--edge)"} stroke-width="1.5" /></g>`)}
    ${[...at.values()].filter(named).map((n) => html`<text class="small" x=${n.x} y=${n.y + n.r + 12} text-anchor="middle" stroke="var(--page)" stroke-width="3" paint-order="stroke" style=${{ pointerEvents: "none", fontWeight: n.id === focus ? 600 : 400 }}>${flat(n.label, LABEL)}</text>`)}
  </svg></div>`;
}
