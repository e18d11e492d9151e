// A stream of events for one who is logged in. EventSource can't say who asks, so the stream is read by fetch.

import { Refusal, pause, send } from "./api.js";

// silence is longer than such a stream is ever silent: it sends something every 15 seconds.
const silence = 40_000;

// A stream that fails is tried again after these, and a random part more, so that all don't come at once.
const firstPause = 500;
const longestPause = 10_000;

// restAfter is how long a page that nobody sees keeps its stream: a browser has few connections for all its tabs.
const restAfter = 60_000;

// follow hears a stream until the signal aborts: hear(event, data) gets each event, line("connecting", "live" or
// "broken") how the connection is. It comes back by itself when it breaks, or throws the Refusal that says that there
// is nothing to hear.
export async function follow(path, { signal, hear, line }) {
  for (let failures = 0; !signal.aborted; failures++) {
    await seen(signal);
    let broken = failures > 0;
    try {
      for await (const { event, data } of events(path, signal, () => line("live"))) {
        failures = 0;
        hear(event, JSON.parse(data));
      }
    } catch (refusal) {
      if (!(refusal instanceof Refusal) || refusal.status === 401 || refusal.status === 403 || refusal.status === 404) {
        throw refusal;
      }
      broken = true;
    }
    if (broken && !signal.aborted) { // and not merely ended: a stream has a longest life
      line("broken");
    }
    await pause(Math.min(longestPause, firstPause * 2 ** failures) * (1 + Math.random()));
  }
}

// seen waits until somebody looks at the page.
function seen(signal) {
  return new Promise((resolve) => {
    const look = () => document.hidden || resolve();
    document.addEventListener("visibilitychange", look, { signal });
    signal.addEventListener("abort", resolve);
    look();
  });
}

// events reads the events of one connection; opened() is called when there is one. It ends when the connection does,
// when nothing comes for too long, or when nobody has looked for a while.
async function* events(path, signal, opened) {
  const over = new AbortController();
  const end = () => over.abort();
  signal.addEventListener("abort", end, { signal: over.signal });
  let rest = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(rest);
    rest = document.hidden ? setTimeout(end, restAfter) : 0;
  }, { signal: over.signal });
  try {
    let text = "";
    const decoder = new TextDecoder();
    for await (const bytes of read(path, over, opened)) {
      const blocks = (text + decoder.decode(bytes, { stream: true })).split("\n\n");
      text = blocks.pop();
      yield* blocks.map(parse).filter(({ data }) => data);
    }
  } finally {
    clearTimeout(rest);
    end();
  }
}

// read reads an answer piece by piece, however long it takes, but gives it up when nothing comes for too long. One that
// breaks off throws a Refusal.
export async function* read(path, over = new AbortController(), opened = () => {}) {
  let quiet = 0;
  const listen = () => {
    clearTimeout(quiet);
    quiet = setTimeout(() => over.abort(), silence);
  };
  try {
    listen();
    const answer = await send("GET", path, { signal: over.signal });
    opened();
    const reader = answer.body.getReader();
    for (;;) {
      const { done, value } = await reader.read().catch(() => { throw new Refusal("network"); });
      if (done) {
        return;
      }
      listen();
      yield value;
    }
  } finally {
    clearTimeout(quiet);
  }
}

// parse reads one event. Lines that are neither its name nor its data, such as comments, say nothing.
function parse(block) {
  const field = (name) => block.split("\n").find((line) => line.startsWith(`${name}:`))?.slice(name.length + 1).trim();
  return { event: field("event"), data: field("data") };
}
