// The stock of a sale, live, by server-sent events. The browser mends a stream that breaks; what it gives up, as after
// an error of the server or a silence, is opened again here.

import { pause } from "./api.js";

// silence is longer than the server is ever silent: it sends something every 15 seconds.
const silence = 40_000;

// A stream that fails is tried again after these, and a random part more, so that all don't come at once.
const firstPause = 1000;
const longestPause = 15_000;

// watch calls stock({available, quota, state, now}) with each change, and line("connecting", "live" or "broken") as the
// stream comes and goes. While nobody looks there is no stream, unless patient() says that somebody waits for stock:
// a browser has few connections for all its tabs.
export function watch(saleID, { stock, line, patient }) {
  let source = null;
  let failures = 0;
  let timer = 0;

  function open() {
    if (source) {
      return;
    }
    const mine = new EventSource(`/api/v1/sales/${saleID}/events`);
    source = mine;
    mine.addEventListener("open", () => { // a stream that the browser has mended may have nothing new to say
      line("live");
      listen();
    });
    mine.addEventListener("stock", (event) => {
      failures = 0;
      listen();
      stock(JSON.parse(event.data));
    });
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

  // listen gives the stream up if nothing comes: the connection may be gone without a word.
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
  });
  line("connecting");
  open();
}
