// What the console's pages of a sale and of a campaign have in common: the head, the connection, the two views, the orders, the
// log, the short link, and what becomes of an action.

import { call, pause } from "./api.js";
import { everySecond, sync } from "./clock.js";
import { refresh as refreshLog, start as startLog } from "./console-log.js";
import { refresh as refreshOrders, start as startOrders } from "./console-orders.js";
import { start as startReport } from "./console-report.js";
import { attend, repeat, sayWindow } from "./desk.js";
import { at, show } from "./dom.js";
import { follow } from "./feed.js";
import { drawOwner, forget } from "./figures.js";
import { dateTime, reason, say } from "./i18n.js";
import { copies } from "./share.js";

// period is how often the subject, its orders and its log are read again, in milliseconds: the stream does not send all that
// other operators change.
const period = 5000;

// late is the age of the last figures, in milliseconds, after which they do not count as live. They come once a second.
const late = 5000;

export const id = location.pathname.split("/").at(-1);

let heard = null; // the time of the last figures, by the server's clock
let arrived = Infinity; // when the last figures came, by performance.now()
let listenAnew = () => {};

// head shows the title and the links of a sale or a campaign, which buyers see at a path.
export function head({ title, short_url: short }, path) {
  document.title = `${title} · Flashsale`;
  at("title-shown").textContent = title;
  at("shop-link").href = path;
  at("short").href = at("short").textContent = short;
  const code = `${new URL(short).pathname}/qr.svg`; // a path on this server, whatever the public URL is
  if (at("qr").getAttribute("src") !== code) {
    at("qr").src = at("qr-download").href = code;
    at("qr-download").download = `${id}.svg`;
  }
}

// facts shows the state, the window and what was sold of the sales, which are those of the subject.
export function facts(subject, state, sales) {
  if (performance.now() - arrived > late && at("line").dataset.line === "live") {
    line("broken");
  }
  at("state").dataset.state = state;
  say(at("state"), `state_${state}`);
  show(at("state"), true);
  sayWindow(at("window"), subject);
  drawOwner(subject, state, sales);
}

// withStock returns a sale that was read, with the stock that the stream has sent. What is read may be a second older. If an
// operator has changed the sale in between, the stream has not sent the stock of the changed sale yet.
export function withStock(said, shown) {
  if (said.revision !== shown?.revision || at("line").dataset.line !== "live") {
    return said;
  }
  const { state, available, held, paid } = shown;
  return { ...said, state, available, held, paid };
}

// offer shows the actions that are possible, given as {id of the button: possible}. If the button that has the focus is hidden,
// the focus moves to another action.
export function offer(actions) {
  const focused = document.activeElement;
  for (const [name, possible] of Object.entries(actions)) {
    show(at(name), possible);
  }
  if (at("actions").contains(focused) && focused.hidden) {
    focusAction();
  }
}

export function focusAction() {
  at("actions").querySelector("button:not([hidden])").focus();
}

// done shows a notice of what was done, and the log of it.
export function done(name, places) {
  say(at("notice"), `done_${name}`, places);
  show(at("notice"), true);
  refreshLog();
}

function line(word) {
  at("line").dataset.line = word;
  for (const part of document.querySelectorAll(".figures")) {
    part.classList.toggle("stale", word === "broken");
  }
  show(at("line"), true);
  if (word === "live") {
    say(at("line"), "live");
    return;
  }
  if (heard && word === "broken") {
    say(at("line"), "not_live", { time: () => dateTime(heard, "medium") });
  } else {
    say(at("line"), word === "broken" ? "connection_broken" : "connecting");
  }
  forget();
}

function listen(path, hear, signal) {
  const over = new AbortController();
  signal.addEventListener("abort", () => over.abort());
  listenAnew = () => {
    over.abort();
    listen(path, hear, signal);
  };
  const heed = (event, figures) => {
    if (event === "figures") {
      heard = Date.parse(figures.now);
      arrived = performance.now();
      if (at("line").dataset.line !== "live") {
        line("live");
      }
      hear(figures);
    }
  };
  follow(`${path}/live`, { signal: over.signal, hear: heed, line }).catch((refusal) => {
    line("broken");
    reason(at("line"), refusal);
  });
}

// relisten opens the stream of figures anew, for the sales that the subject has now.
export const relisten = () => listenAnew();

// views shows the view that the fragment of the address names, and the overview without a fragment. Another fragment, such as that
// of the link to the main part of the page, changes nothing.
function views() {
  const links = [...at("views").querySelectorAll("a")];
  const chosen = links.find(({ hash }) => hash === location.hash)
    ?? (location.hash && links.find((link) => link.matches("[aria-current=true]")) || links[0]);
  for (const link of links) {
    link.setAttribute("aria-current", String(link === chosen));
    show(at(link.hash.slice(1)), link === chosen);
  }
}

// run runs the page of the sale or the campaign that the API has at a path. take(said) gets the subject whenever it was read, and
// hear(figures) the figures of each of its sales once a second. draw() is called every second, and opened() after a log-in.
// labelOf(saleID) returns what orders of a sale are labelled with. run returns a function that reads the subject.
export function run(path, { take, hear, draw, opened, labelOf = () => "" }) {
  const read = async () => (await call("GET", path)).data;
  let known = false;

  async function refresh() {
    try {
      take(await read());
    } catch {
      // line() has shown whether there is a connection
    }
    await Promise.all([refreshOrders(), refreshLog()]);
  }

  async function first(signal) {
    while (!known && !signal.aborted) {
      try {
        take(await read());
        known = true;
      } catch (refusal) {
        if (refusal.status === 404) {
          show(at("unknown"), true);
          show(at("desk"), false);
          return;
        }
        line("broken");
        await pause(period);
      }
    }
  }

  attend(async (signal) => {
    line("connecting");
    await first(signal);
    if (!known || signal.aborted) {
      return;
    }
    startOrders(path, id, refreshLog, labelOf);
    startLog(`${path}/operations`);
    startReport(path, signal);
    repeat(signal, period, refresh);
    listen(path, hear, signal);
    opened();
  });
  copies(at("copy"), at("short"));
  addEventListener("hashchange", views);
  views();
  sync().then(() => everySecond(() => known && draw()));
  return read;
}
