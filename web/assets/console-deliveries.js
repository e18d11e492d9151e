// The deliveries to an endpoint: what was sent, what the endpoint answered, and a button that sends the same events once more.

import { call } from "./api.js";
import { confirm } from "./confirm.js";
import { action, element, label, onClick, row, stamp, word } from "./desk.js";
import { at, show } from "./dom.js";
import { Mistake } from "./fields.js";
import { hush, number, reason, say } from "./i18n.js";

// atOnce is how many deliveries are fetched at a time.
const atOnce = 20;

const error = at("deliveries-error");
const table = at("deliveries-table").parentElement;
let endpoint = null; // {id, url} of the endpoint whose deliveries are shown, or null
let cursor = "";
let unfolded = false; // older deliveries are shown
let turn = 0; // counts the requests: an answer to an earlier one is ignored

// open shows the deliveries to an endpoint.
export async function open(of) {
  endpoint = of;
  at("deliveries").replaceChildren();
  for (const place of [table, at("deliveries-none"), at("deliveries-more")]) {
    show(place, false);
  }
  hush(at("deliveries-told"));
  say(at("deliveries-title"), "deliveries_of", { url: endpoint.url });
  show(at("deliveries-panel"), true);
  at("deliveries-title").focus();
  await newest();
}

export function close() {
  endpoint = null;
  turn++;
  show(at("deliveries-panel"), false);
}

// refresh reads the newest deliveries again, unless older ones are shown, a question is open, or the pointer or the focus is in
// the list. If the endpoint is not among the present ones, refresh closes the list.
export async function refresh(present) {
  if (endpoint && !present.some(({ id }) => id === endpoint.id)) {
    close();
  }
  if (endpoint && !unfolded && !at("confirm").open && !at("deliveries").matches(":hover, :focus-within")) {
    await page("").catch(() => {}); // the next refresh tries again
  }
}

async function newest() {
  unfolded = false;
  try {
    await page("");
  } catch (refusal) {
    reason(error, refusal);
  }
}

async function page(from) {
  const mine = ++turn;
  const { data } = await call("GET", `/admin/endpoints/${endpoint.id}/deliveries?limit=${atOnce}&cursor=${encodeURIComponent(from)}`);
  if (mine === turn) {
    draw(data, from === "");
  }
}

function draw({ deliveries, next_cursor: next }, anew) {
  const lines = deliveries.map(lineOf);
  if (anew) {
    at("deliveries").replaceChildren(...lines);
  } else {
    at("deliveries").append(...lines);
  }
  cursor = next;
  show(at("deliveries-more"), cursor !== "");
  show(at("deliveries-none"), at("deliveries").rows.length === 0);
  show(table, at("deliveries").rows.length > 0);
  hush(error);
}

// lineOf makes the row of a delivery. The answer comes from outside, so it is shown as text, never as markup.
function lineOf(delivery) {
  const when = stamp(delivery.at);
  when.id = `delivery-${delivery.id}`;
  const again = action("deliver_again", when.id, () => repeat(delivery));
  again.dataset.for = "operator";
  return label(row([
    when, eventsOf(delivery), statusOf(delivery), number(delivery.took_ms), element("span", "id long", delivery.answer || "–"), again,
  ], [3]), at("deliveries-table"));
}

const eventsOf = ({ first, last }) => (first === last ? first : `${first}–${last}`);

function statusOf({ status }) {
  const made = status ? element("span", "", status) : word("unanswered", "span");
  made.className = "state";
  made.dataset.state = status >= 200 && status < 300 ? "delivered" : "failed";
  return made;
}

// repeat asks the user, and then sends the events of a delivery once more. That makes a new delivery, whatever the answer is.
async function repeat(delivery) {
  const { id, url } = endpoint;
  const made = await confirm("deliver_again", {
    places: { url, events: eventsOf(delivery) },
    work: async () => {
      try {
        return (await call("POST", `/admin/endpoints/${id}/deliveries/${delivery.id}`)).data;
      } catch (refusal) {
        throw refusal.code === "not_found" ? new Mistake("events_forgotten") : refusal;
      }
    },
  });
  if (made && endpoint?.id === id) { // the endpoint may have been removed meanwhile
    await newest();
    say(at("deliveries-told"), made.status ? "answered_again" : "unanswered_again", { events: eventsOf(made), status: made.status });
    at("deliveries-title").focus(); // the button that had the focus is gone
  }
}

onClick(at("deliveries-more"), error, async () => {
  unfolded = true;
  await page(cursor);
});
