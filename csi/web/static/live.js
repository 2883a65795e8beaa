// Keeps the live parts of a page up to date, shows times as local times, and adds keys. Without it every page still works.
(() => {
  "use strict";
  const REFRESH_SECONDS = 5;
  const WAIT_SECONDS = 8;
  const PARTS = ["menu", "nav", "problems", "main"];
  const main = document.getElementById("main");
  const seconds = Number(main.dataset.refresh) || 0;
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // ── times ────────────────────────────────────────────────────────────────────────────────────────────

  const pad = (number) => String(number).padStart(2, "0");
  const day = (at) => `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const clock = (at) => `${pad(at.getHours())}:${pad(at.getMinutes())}`;
  const local = (at) => `${day(at)} ${clock(at)}:${pad(at.getSeconds())}`;
  const utc = (at) => `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  let ahead = 0; // how far this machine's clock is ahead of the sidecar's, in milliseconds

  // As csi/web/formatting.py has it.
  const span = (value) => {
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (value >= 2 * size) return `${Math.round(value / size)} ${unit}`;
    }
    return `${Math.round(value)} s`;
  };
  const ago = (at) => {
    const value = (Date.now() - ahead - at) / 1000;
    if (Math.abs(value) < 1) return "now";
    return value > 0 ? `${span(value)} ago` : `in ${span(-value)}`;
  };

  const set = (one, text) => { if (one.textContent !== text) one.textContent = text; };
  const showTimes = () => {
    for (const one of all("time[data-ago], time[data-at], time[data-clock]")) {
      const at = new Date(one.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      if ("ago" in one.dataset) set(one, ago(at));
      else set(one, "at" in one.dataset ? local(at) : `${clock(at)}:${pad(at.getSeconds())}`);
      const title = "ago" in one.dataset ? `${local(at)} (${utc(at)})` : utc(at);
      if (one.title !== title) one.title = title;
    }
    for (const one of all("text[data-clock]")) set(one, clock(new Date(one.dataset.clock)));
    for (const one of all(".zone")) set(one, "local times");
  };

  // ── refreshing ───────────────────────────────────────────────────────────────────────────────────────

  const isField = (one) => one && one.matches("input:not([type=checkbox]):not([type=radio]), select, textarea");
  const busy = () => {
    const at = document.activeElement;
    return document.hidden || (main.contains(at) && isField(at)) || !document.getSelection().isCollapsed;
  };

  // Shown while the sidecar does not answer: without it, an old page would look like a healthy installation.
  const bar = document.getElementById("connection");
  const stated = document.getElementById("clock");
  let since = null;

  const lost = (what, cause) => {
    since ||= new Date();
    const text = `${what} since ${local(since)}: ${cause}. This page shows the state of ${stated.textContent}.`;
    if (bar.textContent !== text) bar.textContent = text;
    bar.title = utc(since);
    bar.hidden = false;
    document.body.classList.add("lost");
  };

  const found = () => {
    since = null;
    bar.hidden = true;
    bar.textContent = "";
    document.body.classList.remove("lost");
  };

  let etag = "";
  const ask = async (path, headers) => {
    let answer, text;
    try {
      const signal = AbortSignal.timeout(WAIT_SECONDS * 1000);
      answer = await fetch(path, { credentials: "same-origin", redirect: "manual", cache: "no-store", signal, headers });
      text = await answer.text();
    } catch (error) {
      lost("Connection lost", "the sidecar does not answer");
      return null;
    }
    if (answer.type === "opaqueredirect") {
      location.reload(); // the session has expired
      return null;
    }
    if (!answer.ok && answer.status !== 304) {
      lost("Not refreshed", `the sidecar answered http ${answer.status}`);
      return null;
    }
    found();
    return { text, answer };
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
    const headers = whole ? { "X-CSI-Live": "1", ...(etag ? { "If-None-Match": etag } : {}) } : {};
    const got = await ask(whole ? location.href : "/healthz", headers);
    asking = false;
    if (!whole || got === null || (busy() && seconds > 0)) return;
    refreshedAt = Date.now();
    const sent = new Date(got.answer.headers.get("date") || Date.now());
    ahead = Math.abs(Date.now() - sent) > 2000 ? Date.now() - sent : 0;
    stated.textContent = local(sent);
    stated.title = utc(sent);
    if (got.answer.status === 304) return;
    if (!(got.answer.headers.get("content-type") || "").startsWith("application/json")) return;
    etag = got.answer.headers.get("etag") || "";
    show(JSON.parse(got.text));
  };

  const show = (parts) => {
    const focused = document.activeElement;
    const path = focused === document.body ? null : pathTo(focused);
    for (const name of PARTS) {
      const part = document.getElementById(name);
      if (!part || !(name in parts)) continue;
      const fresh = document.createElement("template");
      fresh.innerHTML = parts[name];
      morph(part, fresh.content);
    }
    begin();
    if (path && !document.contains(focused)) at(path)?.focus({ preventScroll: true });
  };

  // Makes the children of `from` those of `to`. Nodes that stay are kept, and with them focus, ticks and open details.
  const id = (one) => (one.getAttribute && one.getAttribute("id")) || ""; // `form.id` may be its field `id`
  const morph = (from, to) => {
    const wanted = new Set([...to.children].map(id).filter(Boolean));
    for (const one of [...from.children]) if (id(one) && !wanted.has(id(one))) one.remove();
    let here = from.firstChild;
    for (const next of [...to.childNodes]) {
      const same = id(next) ? [...from.children].find((one) => id(one) === id(next)) : here;
      if (same && same.nodeName === next.nodeName && id(same) === id(next)) {
        // What stands before it goes, instead of moving it: an element that is moved loses the focus.
        while (here && here !== same && !id(here)) here = drop(here);
        if (same !== here) from.insertBefore(same, here);
        patch(same, next);
        here = same.nextSibling;
      } else {
        from.insertBefore(document.importNode(next, true), here);
      }
    }
    while (here) here = drop(here);
  };
  const drop = (one) => {
    const next = one.nextSibling;
    one.remove();
    return next;
  };

  const OURS = new Set(["open", "hidden", "title"]); // what a reader or this script changes
  const patch = (old, next) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
      return;
    }
    for (const { name, value } of [...next.attributes]) {
      if (!OURS.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!OURS.has(name) && !next.hasAttribute(name)) old.removeAttribute(name);
    }
    if (!old.matches("time, textarea, button.copy")) morph(old, next);
  };

  // Where an element stands: the nearest element with an id, and what tells it from its neighbours there.
  const KEYS = ["href", "name", "value", "aria-label"];
  const pathTo = (one) => {
    const home = one.parentElement && one.parentElement.closest("[id]");
    const keys = KEYS.filter((name) => one.hasAttribute(name)).map((name) => `[${name}="${CSS.escape(one.getAttribute(name))}"]`);
    return home && { home: home.id, selector: one.localName + keys.join("") };
  };
  const at = (path) => document.getElementById(path.home)?.querySelector(path.selector);

  // ── rows: ticking ────────────────────────────────────────────────────────────────────────────────────

  const boxes = (form) => all(`input[type=checkbox][form="${CSS.escape(form)}"]`);
  const count = () => {
    for (const one of all("[data-count]")) {
      const ticked = boxes(one.dataset.count).filter((box) => box.checked).length;
      set(one, ticked ? `With the ${ticked} ticked:` : "With the ticked ones:");
    }
    for (const one of all("input.all")) {
      const rows = boxes(one.dataset.form);
      one.checked = rows.length > 0 && rows.every((box) => box.checked);
      one.indeterminate = !one.checked && rows.some((box) => box.checked);
    }
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("input.all")) for (const box of boxes(event.target.dataset.form)) box.checked = event.target.checked;
    if (event.target.id === "use-keys") localStorage.setItem("csi-keys", event.target.checked ? "on" : "off");
    count();
  });

  const begin = () => {
    for (const one of all("button.copy, input.all, #show-keys")) one.hidden = false;
    showTimes();
    count();
  };

  // ── keys ─────────────────────────────────────────────────────────────────────────────────────────────

  const dialog = document.getElementById("keys");
  const rows = () => all("tbody tr a.name, .rows li a, .timeline a", main);
  const move = (step) => {
    const found = rows();
    const row = document.activeElement.closest("tr, li");
    const place = found.findIndex((one) => one === document.activeElement || (row && row.contains(one)));
    const next = found[place < 0 ? (step > 0 ? 0 : found.length - 1) : place + step];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    if (isField(document.activeElement)) {
      if (event.key === "Escape") document.activeElement.blur();
      return;
    }
    if (localStorage.getItem("csi-keys") === "off" && event.key !== "?") return;
    if (Date.now() - going < 1500) {
      going = 0;
      const link = document.querySelector(`#nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
      }
      return;
    }
    const act = {
      "/": () => (main.querySelector("input[type=search]") || document.getElementById("main")).focus(),
      "?": () => dialog.showModal(),
      g: () => { going = Date.now(); },
      j: () => move(1),
      k: () => move(-1),
      x: () => document.activeElement.closest("tr")?.querySelector("input[type=checkbox][form]")?.click(),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  document.getElementById("show-keys").addEventListener("click", () => dialog.showModal());
  document.getElementById("use-keys").checked = localStorage.getItem("csi-keys") !== "off";

  // ── forms ────────────────────────────────────────────────────────────────────────────────────────────

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
  setInterval(showTimes, 1000);
  document.addEventListener("visibilitychange", () => {
    refreshedAt = 0; // a tab that is shown again is refreshed at once
    refresh();
  });
  setInterval(refresh, REFRESH_SECONDS * 1000);
})();
