// What every page of the console has: its words, and that only an operator sees more than a question for a log-in.

import "./page.js";
import { enter } from "./account.js";
import { changed, pause, session } from "./api.js";
import { now } from "./clock.js";
import { words } from "./console-words.js";
import { at, show } from "./dom.js";
import { dateTime, hush, knows, learn, locale, number, reason, say } from "./i18n.js";

learn(words);

// attend runs work(signal) each time that an operator is there. The signal aborts when they log out; what was typed
// stays in the page, unseen.
export function attend(work) {
  let present = null; // the operator's token
  let leaving = new AbortController();
  const arrange = () => {
    const who = session();
    const token = who?.role === "operator" ? who.token : null;
    show(at("outside"), !token);
    show(at("desk"), token);
    if (who && !token) {
      say(at("outside-why"), "outside_forbidden", { name: who.name });
    } else {
      say(at("outside-why"), "outside_log_in");
    }
    show(at("outside-enter"), !who);
    if (token !== present) {
      present = token;
      leaving.abort();
      leaving = new AbortController();
      if (token) {
        work(leaving.signal);
      }
    }
  };
  changed.addEventListener("session", arrange);
  at("outside-enter").addEventListener("click", () => enter());
  arrange();
}

// repeat runs work at once and then a while after each end of it, as long as somebody looks, until the signal aborts.
export async function repeat(signal, period, work) {
  while (!signal.aborted) {
    if (!document.hidden) {
      await work();
    }
    await pause(period);
  }
}

// loggedIn does work, again after a new log-in should the old one be over.
export async function loggedIn(work) {
  for (;;) {
    try {
      return await work();
    } catch (refusal) {
      if (refusal.code !== "unauthenticated" || !await enter("refused_unauthenticated")) {
        throw refusal;
      }
    }
  }
}

// tell says why a change was refused. Where no answer came, nobody knows whether it was done.
export function tell(error, refusal) {
  if (refusal.code === "network") {
    say(error, "unsure");
  } else {
    reason(error, refusal);
  }
}

// onClick runs work when a button is clicked, once at a time, and puts into error why it failed.
export function onClick(button, error, work) {
  button.addEventListener("click", async () => {
    if (button.getAttribute("aria-busy") === "true") {
      return;
    }
    button.setAttribute("aria-busy", "true");
    hush(error);
    try {
      await work();
    } catch (refusal) {
      reason(error, refusal);
    } finally {
      button.removeAttribute("aria-busy");
    }
  });
}

// element makes an element of a class with a text in it.
export function element(name, className = "", text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

// word makes an element of a class that says a word in every language.
export function word(key, name, className = "", places = {}) {
  const made = element(name, className);
  say(made, key, places);
  return made;
}

// coded makes an element that says a code of the engine's: in words, or as it is if there are none.
export function coded(kind, code) {
  return knows(`${kind}_${code}`) ? word(`${kind}_${code}`, "span") : element("span", "id", code);
}

// row makes a row of a table of texts or elements. Columns of numbers, and those that only a wide screen has, are marked.
export function row(cells, numeric = [], wide = []) {
  const made = document.createElement("tr");
  cells.forEach((cell, i) => {
    const place = made.insertCell();
    place.append(cell);
    place.classList.toggle("n", numeric.includes(i));
    place.classList.toggle("wide-only", wide.includes(i));
  });
  return made;
}

// label puts the head of its column into each cell of a row: a phone has no room for many columns and shows rows as cards.
export function label(line, { tHead }) {
  [...line.cells].forEach((cell, i) => {
    const made = element("span", "label");
    made.append(...tHead.rows[0].cells[i].cloneNode(true).childNodes);
    cell.prepend(made);
  });
  return line;
}

// put brings a table's body to these rows, or to one that says that there is nothing. Cells that are as they were stay,
// so that a selection in them does too; for that reason none may hold anything that listens.
export function put(body, rows, nothing) {
  const table = body.parentElement;
  if (rows.length === 0) {
    rows = [row([""])];
    say(rows[0].cells[0], nothing);
    rows[0].cells[0].colSpan = table.tHead.rows[0].cells.length;
  } else if (table.matches(".cards")) {
    rows.forEach((made) => label(made, table));
  }
  const known = [...body.rows];
  rows.forEach((made, i) => {
    if (known[i]?.cells.length !== made.cells.length) {
      body.insertBefore(made, known[i] ?? null);
      known[i]?.remove();
      return;
    }
    [...made.cells].forEach((cell, k) => {
      if (!cell.isEqualNode(known[i].cells[k])) {
        known[i].cells[k].replaceWith(cell);
      }
    });
  });
  known.slice(rows.length).forEach((left) => left.remove());
}

// stamp is a moment to the second, with the date unless it is today.
export function stamp(iso) {
  const made = element("time");
  made.dateTime = iso;
  say(made, "moment", { time: () => dateTime(Date.parse(iso), "medium") });
  return made;
}

// stateOf is what an operator sees of a sale now: as buyers do, and before the start also that it is paused. The sale may
// have started since the server spoke.
export function stateOf({ state, status, starts_at: starts }) {
  if (state !== "upcoming") {
    return state;
  }
  if (status === "paused") {
    return "paused";
  }
  return now() < Date.parse(starts) ? "upcoming" : "open";
}

// sayWindow lets an element say from when to when a sale is open.
export function sayWindow(place, { starts_at: starts, ends_at: ends }) {
  const form = () => new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "short" });
  say(place, "moment", { time: () => form().formatRange(Date.parse(starts), Date.parse(ends)) });
}

// milliseconds writes a latency.
export const milliseconds = (n) => (n < 10 ? n.toFixed(2) : number(Math.round(n)));
