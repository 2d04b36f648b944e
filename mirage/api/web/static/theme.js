// Runs before anything is painted: the theme that was chosen here, else the system's.
"use strict";
(() => {
  const THEMES = ["system", "light", "dark"];
  const stored = () => {
    try { return localStorage.getItem("mirage-theme"); } catch { return null; }
  };
  let theme = THEMES.includes(stored()) ? stored() : "system";
  const apply = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme-switch");
    if (button) button.textContent = `Theme: ${theme}`;
  };
  apply();
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme-switch").addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      try { localStorage.setItem("mirage-theme", theme); } catch { /* not kept, then */ }
      apply();
    });
  });
})();
