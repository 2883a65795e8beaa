// Loads the page in the background and replaces its live parts, except while the operator types, selects or reads details.
// Reports in a bar when the sidecar does not answer.
(() => {
  "use strict";
  const REFRESH_SECONDS = 5;
  const WAIT_SECONDS = 8;
  const main = document.getElementById("main");
  const seconds = Number(main && main.dataset.refresh) || 0;

  const busy = () => {
    const at = document.activeElement;
    const typing = at && at !== document.body && main.contains(at) && at.matches("input, select, textarea");
    const opened = main.querySelector("details[open]:not([data-was-open])");
    const marked = !document.getSelection().isCollapsed;
    return document.hidden || typing || opened || marked;
  };

  // Shown while the sidecar does not answer: without it, an old page would look like a healthy installation.
  const bar = document.getElementById("connection");
  let since = null;

  const lost = (what, cause) => {
    since ||= new Date();
    const at = since.toISOString().slice(0, 19).replace("T", " ");
    const text = `${what} since ${at} UTC: ${cause}. This page shows the state of ${document.getElementById("clock").textContent}.`;
    if (bar.textContent !== text) bar.textContent = text;
    bar.hidden = false;
    document.body.classList.add("lost");
  };

  const found = () => {
    since = null;
    bar.hidden = true;
    bar.textContent = "";
    document.body.classList.remove("lost");
  };

  const ask = async (path) => {
    let answer, text;
    try {
      const signal = AbortSignal.timeout(WAIT_SECONDS * 1000);
      answer = await fetch(path, { credentials: "same-origin", redirect: "manual", cache: "no-store", signal });
      text = await answer.text();
    } catch (error) {
      lost("Connection lost", "the sidecar does not answer");
      return null;
    }
    if (answer.type === "opaqueredirect") {
      location.reload(); // the session has expired
      return null;
    }
    if (!answer.ok) {
      lost("Not refreshed", `the sidecar answered http ${answer.status}`);
      return null;
    }
    found();
    return text;
  };

  // A page that failed is asked for itself again: `/healthz` answers while the database cannot be read.
  let refreshedAt = Date.now();
  let asking = false;
  const refresh = async () => {
    document.body.classList.toggle("held", busy());
    if (asking || document.hidden) return;
    asking = true;
    const due = seconds > 0 && !busy() && Date.now() - refreshedAt >= seconds * 1000 - 500;
    const whole = due || since !== null;
    const text = await ask(whole ? location.href : "/healthz");
    asking = false;
    if (!whole || text === null || busy()) return;
    refreshedAt = Date.now();
    show(text);
  };

  const show = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const focused = document.activeElement && document.activeElement.getAttribute("href");
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (other && other.innerHTML !== part.innerHTML) part.replaceChildren(...other.childNodes);
    }
    if (focused) document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    begin();
  };

  const begin = () => {
    for (const one of main.querySelectorAll("details[open]")) one.dataset.wasOpen = "";
    for (const one of main.querySelectorAll("button.copy")) one.hidden = false;
  };

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const text = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch (error) {
      document.getSelection().selectAllChildren(text); // no clipboard without https: mark it, Ctrl-C does the rest
    }
  });

  begin();
  document.addEventListener("visibilitychange", () => {
    refreshedAt = 0; // a tab that is shown again is refreshed at once
    refresh();
  });
  setInterval(refresh, REFRESH_SECONDS * 1000);
})();
