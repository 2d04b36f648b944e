// Show times in the reader's zone. Without scripts the page shows UTC.
"use strict";
(() => {
  const day = { day: "numeric", month: "short" };
  const clock = { hour: "2-digit", minute: "2-digit", hour12: false };
  const full = new Intl.DateTimeFormat("en-GB", { ...day, ...clock });
  const forms = { date: new Intl.DateTimeFormat("en-GB", day), time: new Intl.DateTimeFormat("en-GB", clock) };
  const localise = (root) => {
    for (const time of root.querySelectorAll("time[datetime]:not(.local)")) {
      const text = full.format(new Date(time.dateTime)).replace(",", "");
      if (time.classList.contains("relative")) time.title = text;
      else { time.title = time.dateTime; time.textContent = text; }
      time.classList.add("local");
    }
    for (const text of root.querySelectorAll("text[data-instant]:not(.local)")) {
      const at = new Date(text.dataset.instant);
      const midnight = at.getHours() === 0 && at.getMinutes() === 0;
      text.textContent = forms[midnight ? "date" : text.dataset.form].format(at);
      text.classList.add("local");
    }
  };
  localise(document);
  document.getElementById("zone").textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  document.addEventListener("htmx:afterSwap", () => localise(document));
})();
