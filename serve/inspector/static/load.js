/** Data of a page: loading, here, stale, refused. The old answer stays until the new one is in. @module */
import { useEffect, useRef, useState } from "./vendor/ui.js";

/**
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} ask
 * @param {unknown[]} needs asked again when one of them changes
 * @returns {{data: T|null, error: Error|null, loading: boolean, again: () => void, set: (data: T) => void}}
 */
export function useLoad(ask, needs) {
  const [state, set] = useState({ data: null, error: null, loading: true });
  const [turn, setTurn] = useState(0);
  const alive = useRef(true);
  useEffect(() => () => { alive.current = false; }, []);
  useEffect(() => {
    const leaving = new AbortController();
    set((s) => ({ ...s, loading: true }));
    ask(leaving.signal).then(
      (data) => !leaving.signal.aborted && set({ data, error: null, loading: false }),
      (error) => error.name !== "AbortError" && !leaving.signal.aborted && set((s) => ({ data: s.data, error, loading: false })),
    );
    return () => leaving.abort();
  }, [...needs, turn]);
  return { ...state, again: () => setTurn((n) => n + 1), set: (data) => set({ data, error: null, loading: false }) };
}
