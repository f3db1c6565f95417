/** The pages below a bank. @module */
import { html } from "../vendor/ui.js";
import { Overview } from "./overview.js";
import { Memories } from "./memories.js";
import { Memory } from "./memory.js";
import { Entities } from "./entities.js";
import { Timeline } from "./timeline.js";
import { Documents } from "./documents.js";
import { Changes } from "./changes.js";
import { Operations } from "./operations.js";
import { Settings } from "./settings.js";
import { Recall } from "../recall/recall.js";
import { Compare } from "../recall/compare.js";

const PAGES = { memories: Memories, m: Memory, entities: Entities, timeline: Timeline, documents: Documents, changes: Changes,
  operations: Operations, settings: Settings, recall: Recall, compare: Compare };

export function Bank({ bank, route, may }) {
  const [, , page, id] = route.parts;
  const Shown = page === undefined ? Overview : PAGES[page];
  if (!Shown) return html`<div class="empty"><h1>Nothing here</h1><p>A bank has no page “${page}”.</p></div>`;
  return html`<${Shown} key=${page === "m" ? id : page ?? ""} bank=${bank} id=${id} params=${route.params} may=${may} />`;
}
