// The orders of a sale, of a campaign or of all sales: filter, search, pages, refunds, cancellations, and a file with all orders.

import { call } from "./api.js";
import { confirm } from "./confirm.js";
import { coded, element, onClick, row, stamp, word } from "./desk.js";
import { at, show } from "./dom.js";
import { save } from "./download.js";
import { hush, money, number, reason, say } from "./i18n.js";

// atOnce is how many orders are fetched at a time.
const atOnce = 50;

const error = at("orders-error");
let source = "";
let subject = "";
let changed = () => {};
let labelOf = () => "";
let cursor = "";
let asked = ""; // the filter of the orders that are shown
let unfolded = false; // older orders are shown
let turn = 0; // counts the requests: an answer to an earlier one is ignored

for (const status of at("status") ? ["", "pending", "paid", "cancelled", "expired", "refunded"] : []) {
  const option = new Option("", status);
  say(option, status ? `status_${status}` : "all_states");
  at("status").append(option);
}

// start shows the orders that the API has below a path, and returns those of the first page. It calls ended() after each refund or
// cancellation. label(saleID, order) returns what an order of a sale is labelled with. The list of all sales has no filter.
export function start(path, id, ended, label) {
  source = path;
  subject = id;
  changed = ended;
  labelOf = label;
  return search();
}

// refresh reads the newest orders again, unless older ones are shown, or the pointer or the focus is in the list.
export async function refresh() {
  if (!unfolded && !at("orders").matches(":hover, :focus-within")) {
    await page("").catch(() => {}); // the next refresh tries again
  }
}

async function search() {
  unfolded = false;
  asked = new URLSearchParams({ ...at("status") && { status: at("status").value }, q: at("q").value.trim() }).toString();
  try {
    return await page("");
  } catch (refusal) {
    reason(error, refusal);
    return [];
  }
}

async function page(from) {
  const mine = ++turn;
  const { data } = await call("GET", `${source}/orders?${asked}&limit=${atOnce}&cursor=${encodeURIComponent(from)}`);
  if (mine === turn) {
    draw(data, from === "");
  }
  return data.orders;
}

function draw({ orders, next_cursor: next }, anew) {
  const lines = orders.map(lineOf);
  if (anew) {
    at("orders").replaceChildren(...lines);
  } else {
    at("orders").append(...lines);
  }
  cursor = next;
  show(at("orders-more"), cursor !== "");
  hush(error);
  const n = number(at("orders").rows.length);
  say(at("orders-told"), n === "0" ? "orders_none" : cursor ? "orders_newest" : "orders_all", { n });
}

function lineOf(order) {
  const amount = money(order.amount_cents, order.currency);
  const [who, how] = [element("span"), element("span")];
  const state = coded("status", order.status);
  state.className = "state";
  state.dataset.state = order.status;
  const link = element("a", "id", order.number);
  link.href = `/console/orders?q=${order.id}`;
  who.append(link, element("span", "id long quiet below", order.id), element("span", "quiet below", order.user_id));
  const label = labelOf(order.sale_id, order);
  if (label) {
    who.append(element("span", "below", label));
  }
  how.append(state, element("span", "quiet below narrow-only", amount));
  const line = row([
    who, how, number(order.quantity), amount, order.created_at ? stamp(order.created_at) : "–",
    order.paid_at ? stamp(order.paid_at) : "–", buttons[order.status]?.(order) ?? "",
  ], [2, 3], [2, 3, 4, 5]);
  line.id = order.id;
  return line;
}

function refundButton(order) {
  return endButton(order, "refund", word("refund", "button", "plain"), "refund");
}

function cancelButton(order) {
  return endButton(order, "cancel", word("cancel_any", "button", "plain"), "cancel_any");
}

// buttons make the button that ends an order, by the order's status.
const buttons = { pending: cancelButton, paid: refundButton };

function endButton(order, action, button, question) {
  button.type = "button";
  button.dataset.for = "support";
  button.setAttribute("aria-describedby", order.id);
  button.addEventListener("click", async () => {
    const ended = await confirm(question, {
      places: { amount: money(order.amount_cents, order.currency), user: order.user_id, units: number(order.quantity) },
      grave: true,
      work: async () => (await call("POST", `/admin/orders/${order.id}/${action}`)).data,
    });
    if (ended) {
      const line = lineOf({ ...order, ...ended });
      at(order.id).replaceWith(line);
      line.tabIndex = -1;
      line.focus(); // the button that had the focus is gone
      changed();
    }
  });
  return button;
}

at("search")?.addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});
at("status")?.addEventListener("change", search);
onClick(at("orders-more"), error, () => {
  unfolded = true;
  return page(cursor);
});

if (at("csv")) {
  onClick(at("csv"), error, () => save(`${source}/orders.csv?${asked}`, `orders-${subject}.csv`, at("csv-told")));
}
