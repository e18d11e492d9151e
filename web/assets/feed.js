// A stream of events for a user who is logged in. EventSource can't send a token, so the stream is read by fetch.

import { Refusal, pause, send } from "./api.js";

// silence is how long, in milliseconds, a stream may be silent before it counts as broken. The server sends something
// every 15 seconds.
const silence = 40_000;

// The pause before a stream is opened again, in milliseconds. It doubles with each failure, and up to as much again is
// added at random, so that clients do not all come at once.
const firstPause = 500;
const longestPause = 10_000;

// restAfter is how long a hidden page keeps its stream, in milliseconds: a browser has few connections for all its
// tabs.
const restAfter = 60_000;

// follow reads a stream until the signal aborts, and opens it again when it breaks. It calls hear(event, data) for each
// event, and line("live") or line("broken") when the connection changes. It throws the Refusal if the status is 401,
// 403 or 404.
export async function follow(path, { signal, hear, line }) {
  for (let failures = 0; !signal.aborted; failures++) {
    await seen(signal);
    let broken = failures > 0;
    try {
      for await (const { event, data } of events(path, signal, () => line("live"))) {
        failures = 0;
        broken = false;
        hear(event, JSON.parse(data));
      }
    } catch (refusal) {
      if (!(refusal instanceof Refusal) || refusal.status === 401 || refusal.status === 403 || refusal.status === 404) {
        throw refusal;
      }
      broken = true;
    }
    if (broken && !signal.aborted) { // not if the stream merely ended: a server that stops ends its streams
      line("broken");
    }
    await pause(Math.min(longestPause, firstPause * 2 ** failures) * (1 + Math.random()));
  }
}

// seen waits until the page is visible.
function seen(signal) {
  return new Promise((resolve) => {
    const look = () => document.hidden || resolve();
    document.addEventListener("visibilitychange", look, { signal });
    signal.addEventListener("abort", resolve);
    look();
  });
}

// events reads the events of one connection. It calls opened() when there is a connection. It stops when the connection ends,
// after silence, when the signal aborts, or when the page has been hidden for restAfter.
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

// read reads an answer piece by piece. The whole answer may take any time, but read gives up if nothing comes for longer than
// silence. It throws a Refusal if the answer is none, breaks off or is given up.
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

// parse reads one event: its name and its data. It ignores other lines, such as comments.
function parse(block) {
  const field = (name) => block.split("\n").find((line) => line.startsWith(`${name}:`))?.slice(name.length + 1).trim();
  return { event: field("event"), data: field("data") };
}
