// The log of a sale, a campaign, the endpoints or the staff: what operators did, and what the engine repaired.

import { call } from "./api.js";
import { coded, element, onClick, row, stamp } from "./desk.js";
import { at, show } from "./dom.js";
import { hush, reason } from "./i18n.js";

// atOnce is how many entries are fetched at a time.
const atOnce = 20;

let source = "";
let cursor = "";
let unfolded = false; // older entries are shown, so the list is not refreshed

// start shows the newest entries of the log that the API has at a path.
export function start(path) {
  source = path;
  unfolded = false;
  page("").catch((refusal) => reason(at("log-error"), refusal));
}

// refresh reads the newest entries again, unless older ones are shown.
export async function refresh() {
  if (!unfolded) {
    await page("").catch(() => {}); // the next refresh tries again
  }
}

async function page(from) {
  const { data } = await call("GET", `${source}?limit=${atOnce}&cursor=${encodeURIComponent(from)}`);
  const lines = data.operations.map(lineOf);
  hush(at("log-error"));
  if (from) {
    at("log").append(...lines);
  } else {
    at("log").replaceChildren(...lines);
  }
  cursor = data.next_cursor;
  show(at("log-more"), cursor !== "");
  show(at("log-none"), at("log").rows.length === 0);
}

function lineOf({ at: when, actor, action, detail }) {
  const what = element("span");
  what.append(coded("action", action), element("span", "quiet below", detail));
  return row([stamp(when), element("span", "id", actor), what]);
}

onClick(at("log-more"), at("log-error"), async () => {
  unfolded = true;
  await page(cursor);
});
