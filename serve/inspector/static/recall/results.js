/** What was served, in order: text, arms, score strip. @module */
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { plain, score } from "../format.js";
import { Time } from "../parts/common.js";
import { ArmRanks } from "../parts/arms.js";
import { Text } from "../parts/text.js";
import { Strip, extent } from "./strip.js";

/** How many at once; on a screen that shows one column the detail stands below them. */
const SHOWN = 200, NARROW = 20;
export const oneColumn = () => matchMedia("(max-width: 799px)").matches;

export function Results({ model, m, choose }) {
  const list = useRef(null);
  const [pages, setPages] = useState(1);
  const page = oneColumn() ? NARROW : SHOWN;
  const at = m === null ? -1 : model.served.indexOf(m);
  const shown = model.served.slice(0, Math.max(pages * page, at + 1));
  useEffect(() => setPages(1), [model]);
  const most = useMemo(() => extent(model.served.slice(0, 50).map((item) => model.rows.get(item)).filter(Boolean)), [model]);
  useEffect(() => { if (m !== null && oneColumn()) document.querySelector(".detail")?.scrollIntoView(); else list.current?.querySelector('li[aria-current="true"]')?.scrollIntoView({ block: "nearest" }); }, [m]);
  return html`<ol class="results" ref=${list} aria-label="Results">${shown.map((item, i) => { const row = model.rows.get(item), memory = model.memories[item], result = model.result.get(item);
    return html`<li key=${memory.id} aria-current=${item === m ? "true" : null}><div class="result" onClick=${() => choose({ m: item })}>
      <span class="rank">${i + 1}</span><div><button class="open" aria-label=${`Result ${i + 1}`} onClick=${(e) => { e.stopPropagation(); choose({ m: item }); }}></button><${Text} value=${memory.text} cut=${memory.cut} clamp /></div>
      <div class="meta"><${ArmRanks} ranks=${model.armRanks.get(item) ?? []} /><${Time} value=${memory.start ?? memory.mentioned} /><span>${memory.type}</span>${row?.behind !== null && row?.behind !== undefined && html`<span>placed behind ${(model.servedRank.get(row.behind) ?? "another")}</span>`}${result?.merged && html`<span>stands for ${result.merged + 1}</span>`}</div>
      <div class="side"><div class="final" title=${row?.final}>${score(row?.final ?? result?.scores?.final)}</div>${row && html`<${Strip} row=${row} most=${most} width=${88} />`}</div></div></li>`; })}</ol>
  ${shown.length < model.served.length && html`<div class="row end"><button onClick=${() => setPages(pages + 1)}>Show ${plain(Math.min(page, model.served.length - shown.length))} more</button></div>`}`;
}
