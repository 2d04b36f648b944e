// Live updates: the user can stop them; open details stay open; changes of state are announced once, politely.
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

  const typing = () => document.activeElement.matches("#live input, #live select, #live textarea");

  const reading = () => !wanted || document.hidden || document.querySelector("dialog[open]") || typing() ||
    (getSelection() && !getSelection().isCollapsed);

  button.addEventListener("click", () => {
    wanted = !wanted;
    try { sessionStorage.setItem("mirage-live", wanted ? "yes" : "no"); } catch { /* not kept */ }
    show(standing);
    if (wanted) htmx.trigger(document.body, "refresh");
  });

  const refresh = () => {
    planned = 0;
    if (reading()) { missed = true; return; }
    refreshed = Date.now();
    htmx.trigger(document.body, "refresh");
  };

  const plan = () => { if (!planned) planned = setTimeout(refresh, Math.max(0, refreshed + PAUSE - Date.now())); };
  // At most every two seconds, and never without the last cycle's news.
  const cycled = (event) => {
    const known = fresh && document.getElementById("live").dataset.seen === JSON.parse(event.data).time;
    fresh = false;
    if (!known) plan();
  };

  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id === "live" && !event.detail.serverResponse.includes('id="live"')) {
      event.detail.shouldSwap = false; // another page: the session is over, and this is the login form
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

  // Without HTTP/2 a browser has six connections per server: a hidden window keeps none.
  const address = document.getElementById("main").dataset.events;
  let stream = null;
  let retry = 0;
  let pause = PAUSE;

  const connect = () => {
    clearTimeout(retry);
    if (stream || document.hidden) return;
    stream = new EventSource(address);
    stream.addEventListener("cycle", cycled);
    stream.onopen = () => { pause = PAUSE; show("Live"); };
    stream.onerror = () => {
      show("Not connected");
      plan(); // leads to the login form once the session is over; otherwise shows the current state
      if (stream.readyState !== EventSource.CLOSED) return;
      stream = null;
      retry = setTimeout(connect, pause);
      pause = Math.min(2 * pause, 60000);
    };
  };

  const leave = () => {
    clearTimeout(retry);
    if (stream) stream.close();
    stream = null;
    missed = true;
  };

  document.addEventListener("focusout", () => { if (missed) { missed = false; plan(); } });
  if (!address) { button.hidden = true; return; }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { leave(); return; }
    connect();
    if (missed && wanted) { missed = false; htmx.trigger(document.body, "refresh"); }
  });
  addEventListener("pagehide", leave);
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  show(standing);
  connect();
})();
