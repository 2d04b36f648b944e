// Commands: buttons with data-post and forms with data-post call the API, after a confirmation where data-ask is set.
"use strict";
(() => {
  const said = document.getElementById("said");
  const dialog = document.getElementById("confirm");
  let fading = 0;

  const say = (text, failed) => {
    clearTimeout(fading);
    said.textContent = text;
    said.classList.toggle("failed", failed);
    fading = setTimeout(() => { said.textContent = ""; }, failed ? 20000 : 8000);
  };

  const agreed = (question, danger) => new Promise((resolve) => {
    const yes = document.getElementById("confirm-yes");
    document.getElementById("confirm-text").textContent = question;
    yes.classList.toggle("danger", danger);
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });

  const value = (field) => {
    if (field.type === "number") return field.value === "" ? null : Number(field.value);
    if (field.type === "checkbox") return field.checked;
    if (field.dataset.list !== undefined) return field.value.split(/[\s,]+/).filter(Boolean);
    return field.value;
  };

  const document_of = (form) => {
    const body = {};
    for (const field of form.elements) {
      if (!field.name || field.disabled) continue;
      const given = value(field);
      if (given !== null && given !== "" && !(Array.isArray(given) && !given.length)) body[field.name] = given;
    }
    return body;
  };

  const root = new URL(document.querySelector(".brand").href).pathname.replace(/\/$/, "");

  const send = async (path, method, body) => {
    // A page of another site cannot set this header, so the API accepts the request.
    const headers = { "HX-Request": "true", "Accept": "application/json" };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    try {
      const answer = await fetch(root + path, { method, headers, body: body && JSON.stringify(body) });
      const found = await answer.json().catch(() => ({}));
      if (answer.ok) say(found.sentence || "Done.", false);
      else say(found.detail || `Request failed with status ${answer.status}.`, true);
    } catch {
      say("The daemon does not answer.", true);
    }
    htmx.trigger(document.body, "refresh");
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-post], button[data-delete]");
    if (!button || button.disabled) return;
    if (button.dataset.ask && !(await agreed(button.dataset.ask, button.classList.contains("danger")))) return;
    button.disabled = true;
    const body = button.dataset.body ? JSON.parse(button.dataset.body) : undefined;
    await send(button.dataset.post || button.dataset.delete, button.dataset.post ? "POST" : "DELETE", body);
    button.disabled = false;
  });

  document.addEventListener("submit", async (event) => {
    const form = event.target.closest("form[data-post]");
    if (!form) return;
    event.preventDefault();
    const button = form.querySelector("button[type=submit]");
    button.disabled = true;
    await send(form.dataset.post, "POST", document_of(form));
    button.disabled = false;
  });
})();
