export { h, render, Fragment } from "preact";
export { useState, useEffect, useRef, useMemo, useErrorBoundary, useId } from "preact/hooks";
import htm from "htm";
import { h } from "preact";
export const html = htm.bind(h);
export { forceSimulation, forceManyBody, forceLink, forceCenter, forceCollide } from "d3-force";
