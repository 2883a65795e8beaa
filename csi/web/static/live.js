// Loads the page in the background and replaces its live parts, except while the operator types, selects or reads details.
(() => {
  "use strict";
  const main = document.getElementById("main");
  const seconds = Number(main && main.dataset.refresh) || 0;

  const busy = () => {
    const at = document.activeElement;
    const typing = at && at !== document.body && main.contains(at) && at.matches("input, select, textarea");
    const opened = main.querySelector("details[open]:not([data-was-open])");
    const marked = !document.getSelection().isCollapsed;
    return document.hidden || typing || opened || marked;
  };

  const refresh = async () => {
    document.body.classList.toggle("held", busy());
    if (busy()) return;
    let text;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "manual" });
      if (answer.type === "opaqueredirect") return location.reload(); // the session has expired
      if (!answer.ok) throw new Error(String(answer.status));
      text = await answer.text();
    } catch (error) {
      document.body.classList.add("stale");
      return;
    }
    document.body.classList.remove("stale");
    if (busy()) return;
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
  document.addEventListener("visibilitychange", refresh); // a tab that is shown again is refreshed at once
  if (seconds) setInterval(refresh, seconds * 1000);
})();
