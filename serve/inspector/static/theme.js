/** Light or dark: the system's, or what was chosen for this browser. @module */
const NAME = "fourfold.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export const chosen = () => localStorage.getItem(NAME) ?? "system";
export function apply() {
  const own = chosen();
  document.documentElement.dataset.theme = own === "system" ? (system.matches ? "dark" : "light") : own;
}
export function choose(theme) {
  if (theme === "system") localStorage.removeItem(NAME); else localStorage.setItem(NAME, theme);
  apply();
}
system.addEventListener("change", apply);
apply();
