/** How wide a picture may be: measured, so that its letters are never scaled. @module */
import { useEffect, useRef, useState } from "../vendor/ui.js";

/** @returns {[object, number]} the ref of what is measured, and its width in CSS pixels */
export function useWidth(first = 640, least = 240) {
  const ref = useRef(null);
  const [width, set] = useState(first);
  useEffect(() => {
    if (!ref.current) return undefined;
    const watcher = new ResizeObserver(([entry]) => set(Math.max(least, Math.floor(entry.contentRect.width))));
    watcher.observe(ref.current);
    return () => watcher.disconnect();
  }, []);
  return [ref, width];
}

/** How many letters of 11 or 12 pixels fit. */
export const letters = (width) => Math.max(4, Math.floor(width / 6));
