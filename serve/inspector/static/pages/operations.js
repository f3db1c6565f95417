/** Background work, live: by a stream of events, by asking where none comes through. @module */
import { html, useEffect, useRef, useState } from "../vendor/ui.js";
import { ask, bankPath, events, get, pause, query } from "../api.js";
import { useLoad } from "../load.js";
import { plain } from "../format.js";
import { Empty, Field, Id, Loaded, Problem, Sure, Time } from "../parts/common.js";
import { Name, Text } from "../parts/text.js";

const POLL_MS = 2000, FAILURES = 2;

function useNews(bank, news, refresh) {
  const [how, setHow] = useState("connecting");
  const heard = useRef({ news, refresh });
  heard.current = { news, refresh };
  useEffect(() => {
    const leaving = new AbortController(), { signal } = leaving;
    (async () => {
      let failures = 0, after = null;
      while (!signal.aborted) {
        try {
          for await (const one of events(bankPath(bank, "operations/events"), { signal, after })) { failures = 0; setHow("live"); after = one.id ?? after; if (one.data) heard.current.news(one.data); }
        } catch (error) { if (error.name === "AbortError") return; }
        failures += 1;
        if (failures >= FAILURES) setHow("asking every 2 s");
        try { if (failures >= FAILURES) heard.current.refresh(); await pause(POLL_MS, signal); } catch { return; }
      }
    })();
    return () => leaving.abort();
  }, [bank]);
  return how;
}

export function Operations({ bank, may }) {
  const [status, setStatus] = useState("");
  const from = useLoad((signal) => get(bankPath(bank, `operations${query({ status, limit: 50 })}`), { signal }), [bank, status]);
  const [error, setError] = useState(null);
  const how = useNews(bank, (one) => {
    const held = from.data;
    if (!held || (status && one.status !== status)) return;
    const rest = held.operations.filter((o) => o.id !== one.id);
    from.set({ ...held, operations: [one, ...rest].sort((a, b) => (a.created_at < b.created_at ? 1 : -1)) });
  }, from.again);
  const act = (method, id, rest = "") => ask(method, bankPath(bank, `operations/${id}${rest}`)).then(() => { setError(null); from.again(); }, setError);
  return html`<h1>Operations</h1><div class="row"><${Field} label="Status"><select value=${status} onChange=${(e) => setStatus(e.target.value)}><option value="">all</option>${["pending", "processing", "completed", "failed", "cancelled"].map((s) => html`<option>${s}</option>`)}</select><//><span class="badge" role="status">${how}</span></div>
    <${Problem} error=${error} />
    <${Loaded} from=${from} empty=${(d) => !d.operations.length && html`<${Empty}>No background work${status ? ` is ${status}` : " yet"}. Retains with <code>async</code>, reprocessing and consolidations appear here.<//>`}>${(d) => html`<div class="scroll"><table><thead><tr><th>Asked for</th><th>What</th><th>Status</th><th>Progress</th><th></th></tr></thead><tbody>${d.operations.map((o) => html`<${Operation} key=${o.id} o=${o} may=${may} act=${act} />`)}</tbody></table></div>`}<//>`;
}

function Operation({ o, may, act }) {
  const over = ["completed", "failed", "cancelled"].includes(o.status);
  return html`<tr><td><${Time} value=${o.created_at} /><br /><${Id} value=${o.id} /></td><td>${o.operation_type}${o.document_id && html`<br /><${Name} value=${o.document_id} />`}</td><td><span class=${`badge ${o.status === "failed" ? "bad" : o.status === "processing" ? "strong" : ""}`}>${o.status}</span>${o.error_message && html`<br /><${Text} value=${o.error_message} />`}${o.next_retry_at && !over && html`<br /><span class="small dim">again <${Time} value=${o.next_retry_at} /></span>`}</td>
    <td><${Progress} o=${o} /></td><td>${may("write") && html`<div class="row">${!over && html`<${Sure} label="Cancel" sentence="What it has not stored yet will not be." act=${() => act("DELETE", o.id)} />`}${["failed", "cancelled"].includes(o.status) && html`<button onClick=${() => act("POST", o.id, "/retry")}>Retry</button>`}${over && html`<button onClick=${() => act("DELETE", o.id, "/delete")}>Forget</button>`}</div>`}</td></tr>`;
}

function Progress({ o }) {
  const p = o.progress ?? {};
  const numbers = Object.entries(p).filter(([, v]) => typeof v === "number");
  const done = p.done ?? p.completed ?? p.items_done, total = p.total ?? o.items_count;
  const begun = new Date(o.created_at).getTime(), spent = (Date.now() - begun) / 1000;
  if (typeof done === "number" && total > 0) return html`<progress max=${total} value=${done} aria-label="Progress"></progress><br /><span class="small">${plain(done)} of ${plain(total)}${o.status === "processing" && done ? `, ${(done / spent).toFixed(1)}/s, ${Math.round(((total - done) * spent) / done)} s left` : ""}</span>`;
  return html`<span class="small">${numbers.map(([k, v]) => `${k} ${plain(v)}`).join(", ") || (o.items_count ? `${plain(o.items_count)} items` : "–")}</span>`;
}
