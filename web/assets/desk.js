// What every page of the console has: its words, and the log-in. Nothing else is shown until somebody of the staff is logged in.

import "./page.js";
import { enter } from "./account.js";
import { changed, pause, session } from "./api.js";
import { now } from "./clock.js";
import "./console-words.js";
import { at, show } from "./dom.js";
import { dateTime, hush, knows, locale, number, reason, say } from "./i18n.js";

const staff = ["viewer", "support", "operator"];

// attend calls work(signal) each time somebody of the staff logs in, and at once if one is logged in. The style hides what the
// role may not do: elements with data-for="operator" or data-for="support". The signal aborts when that user logs out. Typed
// values stay in the page, hidden.
export function attend(work) {
  let present = null; // the token of the user for whom work runs
  let leaving = new AbortController();
  const arrange = () => {
    const who = session();
    const token = staff.includes(who?.role) ? who.token : null;
    document.documentElement.dataset.role = who?.role ?? "";
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

// repeat calls work at once, and again period milliseconds after each end of it, until the signal aborts. It skips work
// while the page is hidden.
export async function repeat(signal, period, work) {
  while (!signal.aborted) {
    if (!document.hidden) {
      await work();
    }
    await pause(period);
  }
}

// loggedIn calls work. If the session has expired, it calls work again after a new log-in.
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

// tell shows why a change was refused. If no answer came, it says that the change may have been made or not.
export function tell(error, refusal) {
  if (refusal.code === "network") {
    say(error, "unsure");
  } else {
    reason(error, refusal);
  }
}

// onClick calls work when a button is clicked, once at a time. If work fails, it shows the reason in error.
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

// word makes an element of a class with a word that follows the language.
export function word(key, name, className = "", places = {}) {
  const made = element(name, className);
  say(made, key, places);
  return made;
}

// coded makes an element for a code of the engine: with the word for the code, or with the code itself if there is no word.
export function coded(kind, code) {
  return knows(`${kind}_${code}`) ? word(`${kind}_${code}`, "span") : element("span", "id", code);
}

// action makes a button in a row. about is the id of the element that says what the row is about.
export function action(key, about, work) {
  const made = element("button", "plain");
  say(made, key);
  made.type = "button";
  made.setAttribute("aria-describedby", about);
  made.addEventListener("click", work);
  return made;
}

// row makes a row of a table from texts or elements. numeric are the columns of numbers, wide those that only a wide
// screen shows.
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

// label copies the heads of the columns into the cells of a row: a phone has no room for many columns and shows rows as
// cards.
export function label(line, { tHead }) {
  [...line.cells].forEach((cell, i) => {
    const made = element("span", "label");
    made.append(...tHead.rows[0].cells[i].cloneNode(true).childNodes);
    cell.prepend(made);
  });
  return line;
}

// put replaces the rows of a table's body. If there are no rows, it shows one row with the word whose key is nothing. Cells that
// have not changed stay, so that a text selection in them stays too. For that reason no cell may have event listeners.
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

// list replaces the rows of a table's body by rows of these cells, which may have event listeners. If there are no rows, it shows
// the element none instead of the table.
export function list(body, none, rows, numeric = []) {
  const table = body.parentElement;
  show(none, rows.length === 0);
  show(table, rows.length > 0);
  body.replaceChildren(...rows.map((cells) => label(row(cells, numeric), table)));
}

// stamp makes an element with a moment to the second, and the date unless that is today.
export function stamp(iso) {
  const made = element("time");
  made.dateTime = iso;
  say(made, "moment", { time: () => dateTime(Date.parse(iso), "medium") });
  return made;
}

// stateOf returns the state that an operator sees: that which buyers see, but also paused before the start. It takes into account
// that the sale may have started since the server's answer.
export function stateOf({ state, status, starts_at: starts }) {
  if (state !== "upcoming") {
    return state;
  }
  if (status === "paused") {
    return "paused";
  }
  return now() < Date.parse(starts) ? "upcoming" : "open";
}

// older reports whether what the server says of a sale was read before an operator's change that the page shows already.
export const older = (said, shown) => said.revision < shown?.revision;

// sayWindow writes into an element from when to when a sale is open.
export function sayWindow(place, { starts_at: starts, ends_at: ends }) {
  const form = () => new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "short" });
  say(place, "moment", { time: () => form().formatRange(Date.parse(starts), Date.parse(ends)) });
}

// milliseconds formats a latency.
export const milliseconds = (n) => (n < 10 ? n.toFixed(2) : number(Math.round(n)));
