/** Numbers, times and ids as people read them. @module */

const LOCALE = navigator.language || "en";
const whole = new Intl.NumberFormat("en");
export const count = (n, most = 10_000) => (n === null || n === undefined ? "–" : n > most && most ? `${whole.format(most)}+` : whole.format(n));
export const plain = (n) => (n === null || n === undefined ? "–" : whole.format(n));

/** Three digits of a score. */
const minus = (text) => text.replace("-", "−");
export const score = (x) => (x === null || x === undefined ? "–" : x < 0 ? `−${score(-x)}` : x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x.toFixed(x < 0.1 && x !== 0 ? 3 : 2));
export const exact = (x) => (x === null || x === undefined ? "–" : Math.abs(x) < 1e-9 ? "0" : minus(String(Number(x.toPrecision(9)))));
export const signed = (x) => `${x >= 0 ? "+" : "−"}${score(Math.abs(x))}`;
export const ms = (seconds) => { const t = seconds * 1000; return t >= 100 ? `${t.toFixed(0)} ms` : t >= 1 ? `${t.toFixed(1)} ms` : `${t.toFixed(2)} ms`; };
export const shortId = (id) => (id && id.length > 13 ? id.slice(0, 8) : id);

const day = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium" });
const minute = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium", timeStyle: "short" });
const utcDay = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium", timeZone: "UTC" });

/** A time in the viewer's zone; what carries only a date stays that date. */
export function when(iso) {
  if (!iso) return "–";
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  return /T00:00:00(\.0+)?(Z|\+00:00)$/.test(iso) ? utcDay.format(date) : minute.format(date);
}
export const utc = (iso) => (iso ? `${new Date(iso).toISOString().replace(".000Z", "Z")}` : "");
export function dayOf(iso) { return iso ? utcDay.format(new Date(iso)) : "open"; }
export function ago(iso) {
  if (!iso) return "–";
  const seconds = (Date.now() - new Date(iso).getTime()) / 1000;
  const steps = [[60, "second"], [3600, "minute"], [86_400, "hour"], [2_592_000, "day"], [31_536_000, "month"], [Infinity, "year"]];
  const sizes = { second: 1, minute: 60, hour: 3600, day: 86_400, month: 2_592_000, year: 31_536_000 };
  const unit = steps.find(([most]) => Math.abs(seconds) < most)[1];
  return new Intl.RelativeTimeFormat("en", { numeric: "auto" }).format(-Math.round(seconds / sizes[unit]), unit);
}
export const plural = (n, one, many = `${one}s`) => `${whole.format(n)} ${n === 1 ? one : many}`;
export const local = (date) => day.format(date);
