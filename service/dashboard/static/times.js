"use strict";

// Shows times in the zone of whoever looks. The server wrote them in UTC, and that stays as their title.

const inZone = new Intl.DateTimeFormat(undefined, {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  timeZoneName: "short",
});

function showTimes() {
  for (const time of document.querySelectorAll("time[datetime]:not([title])")) {
    time.title = time.textContent;
    time.textContent = inZone.format(new Date(time.dateTime));
  }
}

showTimes();
// Whoever swaps a part of the page says so.
document.addEventListener("swapped", showTimes);
