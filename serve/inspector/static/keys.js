/** Single keys that do something on a page; what is typed into a field is left alone. @module */
import { useEffect, useRef } from "./vendor/ui.js";

const OFF = "fourfold.keys";
export const enabled = () => localStorage.getItem(OFF) !== "off";
export const enable = (on) => (on ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "off"));

const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]");

/** @param {Record<string, (event: KeyboardEvent) => void>} actions by key; "g x": g, then x */
export function useKeys(actions) {
  const held = useRef(actions);
  held.current = actions;  // as last drawn: a key may come before effects run
  useEffect(() => {
    let before = "";
    const pressed = (event) => {
      const actions = held.current;
      if (event.defaultPrevented || event.altKey || event.metaKey) return;
      if (event.ctrlKey) {
        const act = event.key === "Enter" && actions["Ctrl+Enter"];
        if (act) { event.preventDefault(); act(event); }
        return;
      }
      if (document.querySelector("dialog[open]")) return;
      const single = event.key.length === 1;
      if (typing(event.target)) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      if (event.key === "Enter" && event.target.closest?.('button, a, summary, [role="button"], [tabindex="0"]')) return;
      if (single && !enabled()) return;
      const name = before === "g" ? `g ${event.key}` : event.key;
      before = name === "g" ? "g" : "";
      const act = actions[name];
      if (act) { event.preventDefault(); act(event); }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

export const LIST = [
  ["/", "to the question, or the search"], ["Ctrl Enter", "run"], ["↓ ↑", "next, previous memory"],
  ["Enter", "open what is chosen"], ["Esc", "back"], ["w", "why not"], ["x", "leave the memory out, run again"],
  ["p", "pin it in the picture"], ["t", "picture or table"], ["c", "compare"],
  ["g b", "banks"], ["g o", "overview"], ["g r", "recall"], ["g m", "memories"], ["g e", "entities"], ["g t", "timeline"],
  ["g d", "documents"], ["g c", "changes"], ["g w", "operations"], ["g s", "settings"], ["?", "this list"],
];
