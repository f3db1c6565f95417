/** An explained recall, indexed for the pictures: pure functions over what the server said. @module */
import { ms, dayOf, plain } from "../format.js";

export const REASONS = {
  cap: "cut before the reranker", "min_scores.reranker": "below min_scores.reranker", "min_scores.final": "below min_scores.final",
  told_by_observation: "told by an observation", duplicate: "a duplicate", rank: "beyond twice the budget", limit: "limit", tokens: "tokens",
};

/** @returns what the pictures need: order, places, reasons, parts by memory. */
export function index(explained) {
  const { memories, answer, fused = [], ranked = [], left = [], paths = [], arms = [] } = explained;
  const place = new Map(memories.map((memory, m) => [memory.id, m]));
  const served = (answer.results ?? []).map((r) => place.get(r.id)).filter((m) => m !== undefined);
  const rankOf = new Map();
  const servedRank = new Map(served.map((m, i) => [m, i + 1]));
  const fusedRank = new Map(fused.map((row, i) => [row[0], i + 1]));
  const rankedRank = new Map(ranked.map((row, i) => [row.m, i + 1]));
  return {
    explained, memories, served, servedRank, fusedRank, rankedRank, rankOf,
    armRanks: new Map(fused.map(([m, , ...ranks]) => [m, ranks])),
    rows: new Map(ranked.map((row) => [row.m, row])),
    left: new Map(left.map((row) => [row.m, row])),
    path: new Map(paths.map((p) => [p.m, p])),
    arms: Object.fromEntries(arms.map((arm) => [arm.arm, arm])),
    result: new Map((answer.results ?? []).map((r) => [place.get(r.id), r])),
    place,
  };
}

/** From the seed to the memory: [{m, link, via, evidence, hop}], the seed first. */
export function chain(model, m) {
  const found = [];
  for (let at = m, steps = 0; steps < 12; steps += 1) {
    const path = model.path.get(at);
    found.unshift({ m: at, ...path, m_: at });
    if (!path || found.some((p) => p.m_ === path.from)) break;
    at = path.from;
  }
  return found.map(({ m_, ...step }) => ({ ...step, m: m_ }));
}

export const ordered = (formula) => {
  if (formula.reranked) return formula.ordered_by;
  return { fused: "fused score", rrf: "reciprocal ranks", interleave: "turns" }[formula.ordered_by] ?? formula.ordered_by;
};

/** The words of a span as code points, since the server counts these. */
export const piece = (text, start, end) => Array.from(text).slice(start, end).join("");

/** A recall in one sentence. */
export function sentence(explained) {
  const { answer, cut, tokens, formula, time, spans = [] } = explained;
  if (!formula) return `${answer.results.length} results.`;
  const parts = [`${plain(answer.results.length)} of ${plain(cut.count)} candidates`, `${plain(tokens.used)} of ${plain(tokens.max)} tokens`];
  parts.push(`ordered by ${formula.reranked ? ordered(formula) : `the ${ordered(formula)} (no cross-encoder)`}`);
  const used = time.found.filter((f) => f.used).map((f) => `“${f.text}”`);
  if (time.window) parts.push(`${dayOf(time.window.start)} – ${dayOf(time.window.end)} from ${used.length ? used.join(", ") : time.from === "request" ? "the request" : time.event ? `the event “${time.event.phrase}”` : "its words"}`);
  const root = spans.find((s) => s.parent === null);
  if (root) parts.push(ms(root.seconds));
  if (answer.degraded) parts.push(`without ${answer.degraded.join(", ")}`);
  return `${parts.join(", ")}.`;
}

/** Where all candidates ended, for a recall without results. */
export function ends(model) {
  const { explained } = model;
  const counts = new Map();
  for (const { at } of explained.left) counts.set(REASONS[at] ?? at, (counts.get(REASONS[at] ?? at) ?? 0) + 1);
  const arms = explained.arms.map((a) => `${a.arm}: ${a.state === "ran" ? `${a.listed} of ${a.allowed} allowed` : a.state.replace("_", " ")}`);
  return { arms, left: [...counts] };
}

/** Differences of two requests as [field, a, b]. */
export function differences(a, b) {
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  return names.filter((n) => JSON.stringify(a[n]) !== JSON.stringify(b[n])).map((n) => [n, a[n], b[n]]);
}

const merged = (one, other) => (one && other && typeof one === "object" && typeof other === "object" && !Array.isArray(other) ? { ...one, ...other } : other);
/** A request with a change of the server's made; null takes a field away. */
export function changed(request, change) {
  const next = { ...request };
  for (const [name, value] of Object.entries(change)) {
    if (value === null) delete next[name];
    else next[name] = merged(request[name], value);
  }
  return next;
}
