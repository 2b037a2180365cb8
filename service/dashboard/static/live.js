"use strict";

// Swaps the part of a page that changes until what it shows has ended. The server renders; this only fetches.
//
// Where there is a stream of events, something is fetched when one comes; a stream that is cut is opened again behind
// the last event that was seen. Where there is none, or no more can be opened, it is asked for every now and then.

const view = document.getElementById("live");
const connection = document.getElementById("connection");
const ASK_MS = Number(view.dataset.every || 2000);
const AT_MOST_EVERY_MS = 1000;
// What becomes of a cell after the last event of its run is no event of its own.
const AT_LEAST_EVERY_S = 5;
let seen = Number(view.dataset.after || 0);
let shownAt = performance.now();
let due = null;

// Where the focus is, so that it can be put there again.
function place(element) {
  const link = element.getAttribute("href");
  if (link) return `a[href="${CSS.escape(link)}"]`;
  const around = element.closest("details[id]");
  return around ? `#${CSS.escape(around.id)} > summary` : null;
}

function swap(html) {
  const open = Array.from(view.querySelectorAll("details[open][id]"), (details) => details.id);
  const focused = view.contains(document.activeElement) ? place(document.activeElement) : null;
  view.innerHTML = html;
  shownAt = performance.now();
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) view.querySelector(focused)?.focus({ preventScroll: true });
  document.dispatchEvent(new Event("swapped"));
}

async function refresh() {
  try {
    const response = await fetch(view.dataset.source + location.search);
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    swap(await response.text());
    connection.hidden = true;
  } catch {
    connection.hidden = false;
  }
}

function refreshSoon() {
  due ??= setTimeout(async () => {
    due = null;
    if (!document.hidden) await refresh();
  }, AT_MOST_EVERY_MS);
}

function take(line) {
  if (line.startsWith("id:")) {
    seen = Number(line.slice(3));
    refreshSoon();
  }
}

// Reads the stream until it ends. Events of every kind count, which an EventSource would have to know by name.
async function follow() {
  const response = await fetch(`${view.dataset.stream}?after=${seen}`);
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    lines.forEach(take);
  }
}

function over() {
  return view.querySelector("[data-ended]") !== null;
}

async function keepUp() {
  while (!over()) {
    try {
      if (view.dataset.stream) await follow();
    } catch {
      // Cut, or refused; the next line finds out whether the controller answers at all.
    }
    if (!document.hidden) await refresh();
    if (!over()) await new Promise((resolve) => setTimeout(resolve, ASK_MS));
  }
}

function tick() {
  const passed = (performance.now() - shownAt) / 1000;
  for (const span of view.querySelectorAll("[data-elapsed]")) {
    span.textContent = `${(Number(span.dataset.elapsed) + passed).toFixed(1)}\u00a0s`;
  }
  if (passed >= AT_LEAST_EVERY_S && !document.hidden && !over()) refreshSoon();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !over()) refreshSoon();
});
setInterval(tick, 1000);
keepUp();
