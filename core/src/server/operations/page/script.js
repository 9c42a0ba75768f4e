"use strict";
// Replaces the parts marked data-live by those of a newly fetched page. The rest stays: focus, typed text, scrolling.
(() => {
  const INTERVAL_MS = 5000;
  const TYPING_MS = 250;
  const updates = document.getElementById("updates");
  const pause = document.getElementById("pause");
  let timer = 0;
  let latest = 0;
  let isPaused = false;

  function replace(page) {
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = page.getElementById(part.id);
      if (!next || next.innerHTML === part.innerHTML) continue;
      const selection = getSelection();
      if (!selection.isCollapsed && selection.containsNode(part, true)) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement : null;
      const scrolled = [...part.querySelectorAll(".wide")].map((table) => table.scrollLeft);
      part.replaceChildren(...next.childNodes);
      part.querySelectorAll(".wide").forEach((table, at) => { table.scrollLeft = scrolled[at] ?? 0; });
      if (focused) {
        const same = [...part.querySelectorAll("a, [tabindex]")].find((element) =>
          focused.id ? element.id === focused.id : element.textContent === focused.textContent && element.tagName === focused.tagName);
        (same ?? part.querySelector("[tabindex]"))?.focus({ preventScroll: true });
      }
    }
  }

  async function update() {
    clearTimeout(timer);
    const number = ++latest;
    try {
      const response = await fetch(location.pathname + location.search, { cache: "no-store" });
      if (!response.headers.get("content-type")?.startsWith("text/html")) throw new Error(response.statusText);
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      if (number !== latest) return;
      replace(page);
      document.body.classList.remove("stale");
      updates.textContent = "";
    } catch {
      if (number !== latest) return;
      if (!document.body.classList.contains("stale")) {
        updates.textContent = `no answer since ${new Date().toLocaleTimeString()}`;
      }
      document.body.classList.add("stale");
    }
    if (!isPaused) timer = setTimeout(() => { if (!document.hidden) update(); }, INTERVAL_MS);
  }

  function go(parameters, isNewPlace) {
    const query = parameters.toString();
    const address = location.pathname + (query && `?${query}`);
    if (isNewPlace) history.pushState(null, "", address); else history.replaceState(null, "", address);
    update();
  }

  function filter(form, isNewPlace) {
    const field = form.querySelector("[type=search]");
    const parameters = new URLSearchParams(location.search);
    for (const name of [`${field.name}-skip`, `${field.name}-from`]) parameters.delete(name);
    if (field.value) parameters.set(field.name, field.value); else parameters.delete(field.name);
    go(parameters, isNewPlace);
  }

  for (const form of document.querySelectorAll("form")) {
    let typing = 0;
    form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(typing); filter(form, true); });
    form.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => filter(form, false), TYPING_MS); });
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-live] a");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (link.pathname !== "/" || location.pathname !== "/") return;
    event.preventDefault();
    go(new URLSearchParams(link.search), true);
  });

  addEventListener("popstate", () => {
    const parameters = new URLSearchParams(location.search);
    for (const field of document.querySelectorAll("[type=search]")) field.value = parameters.get(field.name) ?? "";
    update();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !isPaused) update(); });

  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Resume updates" : "Pause updates";
    if (isPaused) clearTimeout(timer); else update();
  });
  timer = setTimeout(update, INTERVAL_MS);
})();
