/** The shell: bar, pages, keys, key page. @module */
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "./vendor/ui.js";
import { get, key, onUnauthorised } from "./api.js";
import { go, href, useRoute } from "./route.js";
import { LIST, enable, enabled, useKeys } from "./keys.js";
import * as theme from "./theme.js";
import { Banks } from "./pages/banks.js";
import { Bank } from "./pages/bank.js";
import { Activity } from "./pages/activity.js";
import { Server } from "./pages/server.js";
import { Admin } from "./pages/admin.js";
import { KeyPage } from "./pages/key.js";
import { Open } from "./pages/open.js";
import { Name } from "./parts/text.js";

const TOP = [["", "Banks"], ["activity", "Activity"], ["server", "Server"]];

function App() {
  const route = useRoute();
  const [who, setWho] = useState(null);
  const [turn, setTurn] = useState(0);
  const help = useRef(null);
  const first = route.parts[0] ?? "";
  const bank = first === "b" ? route.parts[1] : null;

  useEffect(() => {
    onUnauthorised(() => {
      if (!location.hash.startsWith("#/key")) { sessionStorage.setItem("fourfold.back", location.hash); location.hash = "#/key"; }
    });
    if (first === "open") return;
    get("v1/default/whoami").then(setWho, () => setWho(null));
  }, [turn]);
  useEffect(() => { document.title = bank ? `${bank.slice(0, 60).replace(/[^\p{L}\p{N}\p{P}\p{Zs}]/gu, "·")} – Fourfold` : "Fourfold"; }, [bank]);

  const to = (page) => () => bank && go(href(["b", bank, ...page]));
  useKeys({
    "?": () => help.current.showModal(),
    "/": () => document.querySelector("[data-find]")?.focus(),
    "g b": () => go("#/"), "g o": to([]), "g r": to(["recall"]), "g m": to(["memories"]), "g e": to(["entities"]),
    "g t": to(["timeline"]), "g d": to(["documents"]), "g c": to(["changes"]), "g w": to(["operations"]), "g s": to(["settings"]),
  });

  const may = (scope) => who === null || who.scopes.includes(scope);
  const page = first === "" ? html`<${Banks} />`
    : first === "b" && bank !== undefined && bank !== null ? html`<${Bank} key=${bank} bank=${bank} route=${route} may=${may} />`
    : first === "activity" ? html`<${Activity} />`
    : first === "server" ? html`<${Server} who=${who} />`
    : first === "admin" ? html`<${Admin} />`
    : first === "open" ? html`<${Open} />`
    : first === "key" ? html`<${KeyPage} onKey=${() => setTurn((n) => n + 1)} who=${who} />`
    : html`<div class="empty"><h1>Nothing here</h1><p>There is no such page. <a href="#/">All banks</a></p></div>`;
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>To the page</a>
    <header class="top">
      <a class="name" href="#/"><img src="icon.svg" alt="" />Fourfold</a>
      <nav aria-label="Server">${TOP.map(([name, label]) => html`<a href=${`#/${name}`} aria-current=${first === name ? "page" : null}>${label}</a>`)}
        ${who?.scopes.includes("operator") && html`<a href="#/admin" aria-current=${first === "admin" ? "page" : null}>Admin</a>`}
        <a href="#/open" aria-current=${first === "open" ? "page" : null}>Open a file</a></nav>
      <div class="right">
        ${who && html`<a href="#/key" class="small dim" title="Key and tenant"><${Name} value=${who.tenant ?? "operator"} /></a>`}
        <${Theme} />
        <button class="quiet" aria-label="Keys" onClick=${() => help.current.showModal()}>?</button>
      </div>
    </header>
    ${bank !== null && bank !== undefined ? html`<${BankBar} bank=${bank} at=${route.parts[2] ?? ""} />` : null}
    <main id="main" tabindex="-1" class=${route.parts[2] === "recall" || route.parts[2] === "compare" || first === "open" ? "" : "narrow"}><${Guarded} key=${location.hash.split("?")[0]}>${page}<//></main>
    <${Help} at=${help} />`;
}

function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((e) => console.error(e));
  if (error) return html`<div class="note bad" role="alert"><p>This page could not be drawn: <bdi>${String(error.message)}</bdi></p><button onClick=${reset}>Draw it again</button></div>`;
  return children;
}

const BANK_PAGES = [["", "Overview"], ["recall", "Recall"], ["memories", "Memories"], ["entities", "Entities"], ["timeline", "Timeline"],
  ["documents", "Documents"], ["changes", "Changes"], ["operations", "Operations"], ["settings", "Settings"]];

function BankBar({ bank, at }) {
  const bar = useRef(null);
  useEffect(() => { bar.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }); }, [at]);
  return html`<nav class="subnav" aria-label="Bank" ref=${bar}><span class="crumb"><${Name} value=${bank} /></span>${
  BANK_PAGES.map(([name, label]) => html`<a href=${href(["b", bank, ...(name ? [name] : [])])} aria-current=${at === name || name === "memories" && at === "m" || name === "recall" && at === "compare" ? "page" : null}>${label}</a>`)}</nav>`;
}

function Theme() {
  const [own, set] = useState(theme.chosen());
  const next = { system: "light", light: "dark", dark: "system" };
  const shown = { system: "Auto", light: "Light", dark: "Dark" };
  return html`<button class="quiet" aria-label=${`Theme: ${shown[own]}`} title="Theme: as the system, light, dark" onClick=${() => { theme.choose(next[own]); set(next[own]); }}>${shown[own]}</button>`;
}

function Help({ at }) {
  const [on, set] = useState(enabled());
  return html`<dialog ref=${at} aria-labelledby="keys-title"><h2 id="keys-title">Keys</h2>
    <table><tbody>${LIST.map(([keys, does]) => html`<tr><td class="nowrap">${keys.split(" ").map((k) => html`<kbd>${k}</kbd> `)}</td><td>${does}</td></tr>`)}</tbody></table>
    <label class="check"><input type="checkbox" checked=${on} onChange=${(e) => { enable(e.target.checked); set(e.target.checked); }} />Single letters do something</label>
    <div class="row end"><button class="primary" onClick=${() => at.current.close()}>Close</button></div></dialog>`;
}

render(html`<${App} />`, document.getElementById("app"));
