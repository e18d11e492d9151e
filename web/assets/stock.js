// The stock of a sale or of a campaign's sales, and the state of a line, live, by server-sent events. The browser opens a broken
// stream again by itself. This module opens a stream again that the browser gives up, as after an error of the server, or that
// is silent for too long.

import { address, pause } from "./api.js";

// silence is how long, in milliseconds, a stream may be silent before it is opened again. The server sends something
// every 15 seconds.
const silence = 40_000;

// The pause before a stream is opened again, in milliseconds. It doubles with each failure, and up to as much again is
// added at random, so that clients do not all come at once.
const firstPause = 1000;
const longestPause = 15_000;

// watch calls a function of hear for each event of the stream of a sale or a campaign: stock({available, quota, stock, state, revision, now}),
// line(state) with the public state of a sale's line, or stocks({sales, now}). It calls line("connecting", "live" or "broken")
// when the connection changes. A hidden page has no stream, unless patient() says that the buyer waits for stock: a browser has
// few connections for all its tabs. If there is a signal, its abort ends the stream.
export function watch(path, { hear, line, patient, signal }) {
  let source = null;
  let failures = 0;
  let timer = 0;

  function open() {
    if (source || signal?.aborted) {
      return;
    }
    const mine = new EventSource(address(`/api/v1${path}/events`));
    source = mine;
    mine.addEventListener("open", () => { // a stream that was opened again may send no event
      line("live");
      listen();
    });
    for (const [name, take] of Object.entries(hear)) {
      mine.addEventListener(name, (event) => {
        failures = 0;
        listen();
        take(JSON.parse(event.data));
      });
    }
    mine.addEventListener("error", () => {
      line("broken");
      if (mine.readyState === EventSource.CLOSED) {
        again(mine);
      }
    });
    listen();
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  // listen restarts the timer that opens a silent stream again: a connection may be lost without an error.
  function listen() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      line("broken");
      again(source);
    }, silence);
  }

  async function again(failed) {
    if (failed !== source) {
      return;
    }
    close();
    await pause(Math.min(longestPause, firstPause * 2 ** failures++) * (1 + Math.random()));
    open();
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
      open();
    } else if (!patient()) {
      close();
      line("connecting");
    }
  }, { signal });
  signal?.addEventListener("abort", close);
  line("connecting");
  open();
}
