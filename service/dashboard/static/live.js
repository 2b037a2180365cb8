"use strict";

// Swaps the part of a page that changes until what it shows has ended. The server renders; this only fetches.
//
// Where there is a stream of events, something is fetched when one comes; a stream that is cut is opened again behind
// the last event that was seen. Where there is none, or no more can be opened, it is asked for every now and then.

const view = document.getElementById("live");
const ASK_MS = Number(view.dataset.every || 2000);
const AT_MOST_EVERY_MS = 1000;
// What a cell becomes after its last event is no event itself, and times go on.
const AT_LEAST_EVERY_MS = 5000;
const connection = document.getElementById("connection");

let seen = view.dataset.after || "0";
let streaming = false;
let fetching = false;
let fetched = 0;

const ended = () => view.querySelector("[data-ended]") !== null;

// What has the focus, said so that it is found again in what is swapped in.
function focused() {
  const element = document.activeElement;
  if (!view.contains(element)) return null;
  const all = Array.from(view.querySelectorAll(element.tagName));
  const same = all.filter((other) => other.outerHTML === element.outerHTML);
  return { tag: element.tagName, html: element.outerHTML, place: same.indexOf(element), owner: element.closest("details")?.id };
}

function focusAgain(was) {
  const same = Array.from(view.querySelectorAll(was.tag)).filter((element) => element.outerHTML === was.html);
  const owner = was.owner ? document.getElementById(was.owner)?.querySelector("summary") : null;
  (same[was.place] ?? owner)?.focus({ preventScroll: true });
}

function swap(html) {
  const open = Array.from(view.querySelectorAll("details[open][id]"), (details) => details.id);
  const was = focused();
  view.innerHTML = html;
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  document.dispatchEvent(new Event("swapped"));
  if (was) focusAgain(was);
}

async function refresh() {
  if (fetching) return;
  fetching = true;
  try {
    const response = await fetch(view.dataset.source + location.search);
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    swap(await response.text());
    connection.hidden = true;
  } catch {
    connection.hidden = false;
  } finally {
    fetched = Date.now();
    fetching = false;
  }
}

let wanted = false;

function something() {
  if (wanted) return;
  wanted = true;
  setTimeout(() => {
    wanted = false;
    if (!document.hidden) refresh();
  }, Math.max(0, fetched + AT_MOST_EVERY_MS - Date.now()));
}

// Lines of a stream: whatever comes is a reason to look, and its number is where to go on when the stream is cut.
function read(line) {
  if (line.startsWith("id:")) seen = line.slice(3).trim();
  if (line.startsWith("data:")) something();
}

async function follow() {
  const response = await fetch(`${view.dataset.stream}?after=${encodeURIComponent(seen)}`);
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  streaming = true;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    lines.forEach(read);
  }
}

async function keepFollowing() {
  while (!ended()) {
    try {
      await follow();
    } catch {
      // It is asked for meanwhile, and that says whether anybody answers.
    }
    streaming = false;
    await new Promise((resolve) => setTimeout(resolve, ASK_MS));
  }
}

async function tick() {
  const due = fetched + (streaming ? AT_LEAST_EVERY_MS : ASK_MS) <= Date.now();
  if (due && !document.hidden) await refresh();
  if (!ended()) setTimeout(tick, AT_MOST_EVERY_MS);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !ended()) something();
});
fetched = Date.now();
setTimeout(tick, AT_MOST_EVERY_MS);
if (view.dataset.stream) keepFollowing();
