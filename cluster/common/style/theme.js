"use strict";

/** The theme of a page: the system's, or the one that was chosen with the button. */
const stampedeTheme = (() => {
  const root = document.documentElement;
  root.classList.add("js");
  const themes = ["auto", "light", "dark"];
  const listeners = [];
  const remembered = () => { try { return localStorage.getItem("stampede-theme"); } catch { return null; } };
  let theme = themes.includes(remembered()) ? remembered() : "auto";

  function redraw() { listeners.forEach((listener) => listener()); }

  function apply() {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
    redraw();
  }

  document.getElementById("theme")?.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("stampede-theme", theme); } catch { /* a page without storage forgets it */ }
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  return { apply, onChange: (listener) => listeners.push(listener) };
})();
