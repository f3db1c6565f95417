/** Where the page is: all of it in the fragment, which no browser sends. @module */
import { useEffect, useState } from "./vendor/ui.js";

/** Longest state that goes into an address. */
export const LONGEST = 4000;

/** @returns {{parts: string[], params: Record<string, string>}} */
export function read(hash = location.hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?");
  return {
    parts: path.split("/").filter(Boolean).map((part) => { try { return decodeURIComponent(part); } catch { return part; } }),
    params: Object.fromEntries(new URLSearchParams(search)),
  };
}

export function href(parts, params = {}) {
  const search = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== undefined && v !== null && v !== "")).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export function go(to, { replace = false } = {}) {
  if (to === location.hash) return;
  if (replace) { history.replaceState(null, "", to); dispatchEvent(new HashChangeEvent("hashchange")); }
  else location.hash = to;
}

export function useRoute() {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const changed = () => set(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return read(hash);
}

const bytes = (text) => Array.from(new TextEncoder().encode(text), (b) => String.fromCharCode(b)).join("");

/** An object as base64url of its JSON; the empty text for one without fields. */
export const pack = (value) =>
  Object.keys(value).length ? btoa(bytes(JSON.stringify(value))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "") : "";

/** What `pack` made; null for anything else. */
export function unpack(text) {
  if (!text) return null;
  try {
    const raw = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(raw, (c) => c.charCodeAt(0))));
  } catch { return null; }
}
