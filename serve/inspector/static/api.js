/** The only place that asks the server: addresses, the key, errors, retries. @module */

const BASE = new URL("../", document.baseURI);
const KEY = "fourfold.key";

/** What the server said no with. `detail` is its sentence; `fields` the messages by field. */
export class Refused extends Error {
  constructor(status, body, headers) {
    const detail = body?.detail;
    const list = Array.isArray(detail) ? detail : null;
    super(list ? list.map((d) => `${d.loc.slice(1).join(".") || "body"}: ${d.msg}`).join("; ")
      : typeof detail === "string" ? detail : `the server answered ${status}`);
    this.status = status;
    this.fields = {};
    for (const d of list ?? []) this.fields[String(d.loc[1] ?? "body")] = d.msg;
    const named = !list && status === 400 && /^([a-z_]+)[:. ]/.exec(this.message);
    if (named) this.fields[named[1]] = this.message;
    this.stage = body?.stage;
    this.finished = body?.finished;
    this.requestId = headers?.get("x-request-id") ?? null;
    this.retryAfter = Number(headers?.get("retry-after")) || null;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

let unauthorised = () => {};
/** @param {() => void} listener is told when a key is asked for */
export const onUnauthorised = (listener) => { unauthorised = listener; };

/** Addresses of a bank's resources; ids may hold anything. */
export const bankPath = (bank, rest = "") =>
  `v1/default/banks/${encodeURIComponent(bank)}${rest ? `/${rest}` : ""}`;

export function query(parameters) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== undefined && one !== null && one !== "") found.append(name, String(one));
  const text = found.toString();
  return text ? `?${text}` : "";
}

export async function raw(method, path, { body, signal, headers } = {}) {
  const sent = { ...headers };
  if (body !== undefined) sent["content-type"] = "application/json";
  if (key.get()) sent.authorization = `Bearer ${key.get()}`;
  let answer;
  try {
    answer = await fetch(new URL(path, BASE), {
      method, signal, headers: sent, credentials: "omit", cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { detail: "The server does not answer: it may be starting, or away." });
  }
  if (answer.ok) return answer;
  let said = null;
  try { said = await answer.json(); } catch { /* no JSON: the status says enough */ }
  const refused = new Refused(answer.status, said, answer.headers);
  if (answer.status === 401) unauthorised();
  throw refused;
}

/** JSON of the server. Waits as long as it asks for, once, where it is busy (429, 503). */
export async function ask(method, path, options = {}) {
  try {
    return await (await raw(method, path, options)).json();
  } catch (error) {
    if (!(error instanceof Refused) || ![429, 503].includes(error.status) || method !== "GET" && !options.again) throw error;
    await options.waiting?.(error);
    await pause(Math.min(error.retryAfter ?? 1, 30) * 1000, options.signal);
    return (await raw(method, path, options)).json();
  }
}

export const get = (path, options) => ask("GET", path, options);

export function pause(ms, signal) {
  return new Promise((done, abort) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); abort(new DOMException("left", "AbortError")); });
  });
}

/** Server-sent events over fetch, which can send a key. Yields {event: "open"}, then {event, id, data}. */
export async function* events(path, { signal, after } = {}) {
  const answer = await raw("GET", path, { signal, headers: after ? { "last-event-id": after } : {} });
  yield { event: "open" };
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").filter((l) => l && !l.startsWith(":"))
        .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (fields.data) yield { event: fields.event, id: fields.id, data: JSON.parse(fields.data) };
    }
  }
}
