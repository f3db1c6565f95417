/** The recall page: ask, look, ask again. @module */
import { html, useEffect, useRef, useState } from "../vendor/ui.js";
import { ask, bankPath, get } from "../api.js";
import { LONGEST, go, href, pack, read, unpack } from "../route.js";
import { useKeys } from "../keys.js";
import { plural } from "../format.js";
import { Bones, Empty, Problem } from "../parts/common.js";
import { Request, trimmed } from "./request.js";
import { Shown } from "./shown.js";

const EXAMPLES = ["Why did the harvest festival move to the old mill?", "What happened in October 2024?", "Who repaired the tower clock?"];
const VERSION_MS = 15_000;

export function Recall({ bank, params }) {
  const own = unpack(params.r);
  const [request, setRequest] = useState(own ?? { query: "" });
  const [shown, setShown] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [writes, setWrites] = useState(0);
  const [usual, setUsual] = useState(null);
  const leaving = useRef(null);
  const ran = useRef(null);

  const run = async (body, { address = true } = {}) => {
    const sent = trimmed(body);
    leaving.current?.abort();
    const signal = (leaving.current = new AbortController()).signal;
    setBusy(true);
    setError(null);
    try {
      const explained = await ask("POST", bankPath(bank, "memories/recall/explain"), { body: sent, signal, again: true, waiting: setError });
      setShown({ request: sent, explained });
      setError(null);
      setWrites(0);
      const r = pack(sent);
      ran.current = r;
      if (address && r.length < LONGEST && read().parts[2] === "recall") go(href(["b", bank, "recall"], { v: read().params.v, r }));
    } catch (failed) { if (failed.name !== "AbortError") setError(failed); else return; }
    setBusy(false);
  };
  useEffect(() => { if (own?.query && params.r !== ran.current) { setRequest(own); run(own, { address: false }); } }, [params.r]);
  useEffect(() => () => leaving.current?.abort(), []);
  useEffect(() => { get("v1/default/activity").then((a) => setUsual(a.total), () => {}); }, [shown]);
  useEffect(() => {  // stale: said, never acted on
    if (!shown?.explained.bank) return undefined;
    const timer = setInterval(() => { if (!document.hidden) get(bankPath(bank, "overview")).then((o) => setWrites(o.version - shown.explained.bank.version), () => {}); }, VERSION_MS);
    return () => clearInterval(timer);
  }, [shown]);

  const choose = (changes) => go(href(["b", bank, "recall"], { ...read().params, ...Object.fromEntries(Object.entries(changes).map(([k, v]) => [k, k === "m" && typeof v === "number" ? shown.explained.memories[v].id : v])) }), { replace: true });
  const exclude = (id) => { const next = { ...request, exclude_ids: [...new Set([...(request.exclude_ids ?? []), id])] }; setRequest(next); run(next); };
  useKeys({ "Ctrl+Enter": () => run(request), c: () => go(href(["b", bank, "compare"], { a: pack(trimmed(request)), b: pack(trimmed(request)) })) });
  const changed = shown && JSON.stringify(trimmed(request)) !== JSON.stringify(shown.request);
  return html`<h1 class="sr">Recall</h1><div class="recall">
    <${Request} request=${request} change=${setRequest} run=${() => run(request)} fields=${error?.fields} busy=${busy} beside=${shown && html`<a class="button" href=${href(["b", bank, "compare"], { a: pack(shown.request), b: pack(trimmed(request)) })}>Compare</a>`} />
    ${error && html`<div><${Problem} error=${error} again=${error.status === 401 ? null : () => run(request)} /></div>`}
    ${shown === null && !error ? (busy ? html`<div aria-busy="true"><${Bones} rows=${3} height=${20} /><${Bones} rows=${6} height=${48} /></div>`
      : html`<${Empty}><p>Ask this bank a question: what it finds is shown here, with how it was found, and what was left out and why.</p>${bank === "sample" && html`<ul>${EXAMPLES.map((q) => html`<li><button class="link" onClick=${() => { const next = { query: q }; setRequest(next); run(next); }}>${q}</button></li>`)}</ul>`}<//>`) : null}
    ${shown && html`<${Shown} bank=${bank} request=${shown.request} explained=${shown.explained} at=${{ m: params.m ?? null, v: params.v }} choose=${choose} exclude=${exclude} usual=${usual} stale=${busy} />`}
    ${writes > 0 && html`<div class="note warn" role="status" style=${{ gridColumn: "1 / -1" }}><p>${plural(writes, "write")} since. <button onClick=${() => run(request)}>Run again</button></p></div>`}
    ${changed && !busy && html`<p class="sr" role="status">The request was changed; it has not been run.</p>`}</div>`;
}
