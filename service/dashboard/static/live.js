"use strict";

// Swaps the part of a page that changes until what it shows has ended. The server renders; this only fetches.
//
// Where there is a stream of events, something is fetched when one comes; a stream that is cut is opened again behind
// the last event that was seen. Where there is none, or no more can be opened, it is asked for every now and then.

const view = document.getElementById("live");
const ASK_MS = Number(view.dataset.every || 2000);
const AT_MOST_EVERY_MS = 1000;

