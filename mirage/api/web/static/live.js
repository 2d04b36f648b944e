// What comes with each refresh: it can be stopped, keeps what the reader has opened, and is announced once, politely.
"use strict";
(() => {
  const PAUSE = 2000;
  const button = document.getElementById("live-switch");
  const news = document.getElementById("news");
  let wanted = true;
  try { wanted = sessionStorage.getItem("mirage-live") !== "no"; } catch { /* then it is */ }
  let missed = false;
  let fresh = true;
  let refreshed = 0;
  let planned = 0;
  let open = [];
  let heard = new Map();
  let standing = "Connecting";

  const show = (how) => {
    button.setAttribute("aria-pressed", String(wanted));
    button.textContent = wanted ? how : "Updates stopped";
    button.classList.toggle("off", !wanted || how !== "Live");
    standing = how;
  };

  const facts = () => new Map([...document.querySelectorAll("[data-say]")].map((each) => [each.dataset.say, each.dataset.now]));

  const reading = () => !wanted || document.hidden || document.querySelector("dialog[open]") ||
    (getSelection() && !getSelection().isCollapsed);

  button.addEventListener("click", () => {
    wanted = !wanted;
    try { sessionStorage.setItem("mirage-live", wanted ? "yes" : "no"); } catch { /* not kept */ }
    show(standing);
    if (wanted) htmx.trigger(document.body, "refresh");
  });

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && missed) { missed = false; htmx.trigger(document.body, "refresh"); }
  });

  const refresh = () => {
    planned = 0;
    if (reading()) { missed = true; return; }
    refreshed = Date.now();
    htmx.trigger(document.body, "refresh");
  };

  const plan = () => { if (!planned) planned = setTimeout(refresh, Math.max(0, refreshed + PAUSE - Date.now())); };
  // At most every two seconds, and never without the last cycle's news.
  document.addEventListener("sse:cycle", (event) => {
    const known = fresh && document.getElementById("live").dataset.seen === JSON.parse(event.detail.data).time;
    fresh = false;
    if (!known) plan();
  });

  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id === "live" && !event.detail.serverResponse.includes('id="live"')) {
      event.detail.shouldSwap = false; // another page has come: the session is over, and this is where to log in
      location.reload();
      return;
    }
    heard = facts();
    open = [...document.querySelectorAll("#live details[open][id]")].map((each) => each.id);
  });

  document.addEventListener("htmx:afterSwap", () => {
    for (const id of open) { const each = document.getElementById(id); if (each) each.open = true; }
    const changed = [...facts()].filter(([id, text]) => heard.has(id) && heard.get(id) !== text).map(([, text]) => text);
    if (changed.length) news.textContent = changed.join(". ");
  });

  document.addEventListener("htmx:sseOpen", () => show("Live"));
  // A stream that is refused may mean that the session is over: then the refresh leads to the form.
  document.addEventListener("htmx:sseError", () => { show("Not connected"); plan(); });
  show(standing);
})();
