// The server's time. The device's clock may be wrong or be set while the page is open, so time is counted from when
// the page was loaded, and the server says what time that was.

import { look, pause } from "./api.js";

// samples is how often the server is asked: the quickest answer says it best.
const samples = 3;

// stale is after how long the server is asked again when somebody comes back to the page: a device that slept may
// have stopped counting.
const stale = 60_000;

let offset = Date.now() - performance.now(); // until the server has answered
let quickest = Infinity;
let asked = -Infinity;

// now is the server's time in milliseconds since 1970.
export const now = () => performance.now() + offset;

// sync asks the server for its time, and is done with the first answer; others make it more exact. Should there be
// none, time goes on as it was known.
export async function sync() {
  asked = performance.now();
  quickest = Infinity;
  const more = async () => {
    for (let i = 1; i < samples; i++) {
      await pause(100);
      await sample();
    }
  };
  try {
    await sample();
    more().catch(() => {});
  } catch {
    // the stream of the stock says when our time is far off
  }
}

// sample counts half of the way there and back.
async function sample() {
  const sent = performance.now();
  const { unix_ms: said } = await look("/time");
  const trip = performance.now() - sent;
  if (trip < quickest) {
    quickest = trip;
    offset = said + trip / 2 - performance.now();
  }
}

// check compares our time with one that the server has just sent.
export function check(time) {
  const late = now() - time;
  if ((late < -1000 || late > 5000) && performance.now() - asked > samples * 1000) {
    sync();
  }
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && performance.now() - asked > stale) {
    sync();
  }
});

// everySecond calls back at once and at each full second of the server's time.
export function everySecond(tick) {
  tick();
  setTimeout(everySecond, 1000 - (now() % 1000), tick);
}
