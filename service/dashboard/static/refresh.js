"use strict";

// Swaps the changing part of a sweep's page until the sweep has ended. The server renders; this only fetches.

const INTERVAL_MS = 2000;
const view = document.getElementById("sweep");
const connection = document.getElementById("connection");

function swap(html) {
  const open = Array.from(view.querySelectorAll("details[open]"), (details) => details.id);
  const focused = view.contains(document.activeElement) ? document.activeElement.closest("details") : null;
  view.innerHTML = html;
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused.id)?.querySelector("summary").focus({ preventScroll: true });
}

async function refresh() {
  try {
    const response = await fetch(view.dataset.source);
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    swap(await response.text());
    connection.hidden = true;
  } catch {
    connection.hidden = false;
  }
}

async function tick() {
  if (!document.hidden) await refresh();
  if (!view.querySelector("[data-ended]")) setTimeout(tick, INTERVAL_MS);
}

setTimeout(tick, INTERVAL_MS);
