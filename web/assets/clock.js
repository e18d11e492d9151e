// The server's time. The device's clock may be wrong, or be set while the page is open. So time is counted from the
// load of the page, and the server tells the time of the load.

import { look, pause } from "./api.js";

// samples is how many times sync asks the server. The quickest answer is the most exact.
const samples = 3;

// stale is the time, in milliseconds, after which the server is asked again when the page is shown again: a device that
// slept may have stopped counting.
const stale = 60_000;

let offset = Date.now() - performance.now(); // by the device's clock, until the server has answered
let quickest = Infinity;
let asked = -Infinity;

// now is the server's time in milliseconds since 1970.
export const now = () => performance.now() + offset;

// sync asks the server for its time. It resolves at the first answer; later answers make the time more exact. Without
// an answer the offset stays as it was.
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
    // check() finds out whether the time is far off
  }
}

// sample asks once. It assumes that the answer took half of the round trip.
async function sample() {
  const sent = performance.now();
  const { unix_ms: said } = await look("/time");
  const trip = performance.now() - sent;
  if (trip < quickest) {
    quickest = trip;
    offset = said + trip / 2 - performance.now();
  }
}

// check compares the time with the one that the server has just sent, and asks the server again if they differ too
// much.
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

// everySecond calls tick at once and at each full second of the server's time.
export function everySecond(tick) {
  tick();
  setTimeout(everySecond, 1000 - (now() % 1000), tick);
}
