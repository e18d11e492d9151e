// The page of a buyer's orders, the newest first. /orders#ID marks one order and scrolls to it. The page of the payment
// links back to that address.

import "./page.js";
import { enter } from "./account.js";
import { call, changed, look, pause, session } from "./api.js";
import { cancel } from "./cancel.js";
import { everySecond, now, sync } from "./clock.js";
import { at, enable, enabled, show } from "./dom.js";
import { duration, hush, money, number, reason, say, zoned } from "./i18n.js";
import { noted, pay, payable, reread } from "./order.js";
import { payOf } from "./sale-words.js";

// atOnce is how many orders are fetched at a time.
const atOnce = 20;

// lookAgain is how often the list is read again while it shows a pending order, in milliseconds: it may be paid elsewhere, or expire.
// longest is the longest list that the server gives at once.
const lookAgain = 5000;
const longest = 500;

const shown = new Map(); // by id: {order, card}
const sales = new Map(); // by id: a promise of the sale
let cursor = "";

const saleOf = (id) => {
  if (!sales.has(id)) {
    sales.set(id, look(`/sales/${id}`));
  }
  return sales.get(id);
};

// put shows an order, or updates it.
function put(order, place = "append") {
  const known = shown.get(order.id);
  const card = known?.card ?? newCard(order, place);
  shown.set(order.id, { order, card });
  draw({ order, card });
}

function newCard(order, place) {
  const card = at("order").content.firstElementChild.cloneNode(true);
  const find = (selector) => card.querySelector(selector);
  card.id = order.id;
  card.classList.toggle("wanted", location.hash === `#${order.id}`);
  find("a").href = `/sales/${order.sale_id}`;
  find("a").textContent = "…";
  saleOf(order.sale_id).then((sale) => { find("a").textContent = sale.title; }).catch(() => { find("a").textContent = order.sale_id; });
  find(".pay").addEventListener("click", () => act(order.id, ".pay", pay));
  find(".cancel").addEventListener("click", () => act(order.id, ".cancel", cancel));
  at("orders")[place](card);
  return card;
}

function draw({ order, card }) {
  const find = (selector) => card.querySelector(selector);
  const late = order.status === "pending" && !payable(order);
  const price = money(order.amount_cents / order.quantity, order.currency);
  const amount = money(order.amount_cents, order.currency);
  find(".state").dataset.state = late ? "expired" : order.status;
  say(find(".state"), `status_${late ? "expired" : order.status}`);
  say(find(".units"), "units", { n: number(order.quantity), price });
  find(".amount").textContent = amount;
  drawTerms(find("dl"), order);
  say(find(".pay"), ...payOf(order));
  say(find(".cancel"), "cancel_order");
  show(find(".actions"), payable(order));
}

// drawTerms shows the number and the times of an order. Only an expiry that is still to come is counted down.
function drawTerms(list, order) {
  const expires = Date.parse(order.expires_at);
  const lines = [["number"]];
  if (order.created_at) { // of a lost attempt it is not known
    lines.push(["at_created", order.created_at]);
  }
  if (order.paid_at) {
    lines.push(["at_paid", order.paid_at]);
  } else if (order.expires_at && order.status !== "cancelled") {
    lines.push([payable(order) ? "at_expires" : "at_expired", order.expires_at]);
  }
  if (list.children.length !== 2 * lines.length) {
    list.replaceChildren(...lines.flatMap(() => [document.createElement("dt"), document.createElement("dd")]));
  }
  lines.forEach(([word, time], i) => {
    const [term, value] = [list.children[2 * i], list.children[2 * i + 1]];
    say(term, word === "number" ? "order" : word);
    value.textContent = time ? zoned(time) + (word === "at_expires" ? ` (${duration(expires - now())})` : "") : order.number;
  });
}

// act calls an action on an order. If that fails, it shows the reason beside the buttons.
async function act(id, selector, what) {
  const { order, card } = shown.get(id);
  const button = card.querySelector(selector);
  const error = card.querySelector(".error");
  if (!enabled(button)) {
    return;
  }
  enable(button, false);
  hush(error);
  try {
    const after = await what(order);
    if (after) {
      put(after);
      card.querySelector("a").focus(); // the button is hidden now
    }
  } catch (refusal) {
    reason(error, refusal);
    refresh(order);
  }
  enable(button, true);
}

async function refresh(order) {
  try {
    put(await reread(order));
  } catch {
    // the next refresh tries again
  }
}

const page = async (limit, from) => (await call("GET", `/orders?limit=${limit}&cursor=${encodeURIComponent(from)}`)).data;

// follow reads the list again as far as the oldest pending order that is shown, in pages as long as what is shown.
async function follow() {
  const before = new Map(shown);
  const pending = new Set([...shown.values()].flatMap(({ order }) => (order.status === "pending" ? [order.id] : [])));
  for (let from = ""; pending.size > 0 && from !== null;) {
    const { orders, next_cursor: next } = await page(Math.min(shown.size, longest), from);
    for (const order of orders.toReversed()) {
      pending.delete(order.id);
      if (shown.has(order.id) && shown.get(order.id) === before.get(order.id)) { // else it was changed meanwhile
        put(noted(order));
      }
    }
    from = next || null;
  }
}

async function more() {
  try {
    const data = await page(atOnce, cursor);
    data.orders.toReversed().forEach(noted); // the oldest first
    data.orders.forEach((order) => put(order));
    cursor = data.next_cursor;
    show(at("more"), cursor !== "");
    show(at("none"), shown.size === 0);
  } catch (refusal) {
    tell(refusal);
  }
}

// wanted shows the order that the URL names. If it is not among those that are shown, it is put before them.
async function wanted() {
  const id = location.hash.slice(1);
  if (id && !shown.has(id)) {
    try {
      put(await reread({ id }), "prepend");
    } catch {
      say(at("notice"), "order_missing");
      show(at("notice"), true);
    }
  }
  document.getElementById(id)?.scrollIntoView({ block: "nearest" });
}

function tell(refusal) {
  if (session()) {
    reason(at("notice"), refusal);
    show(at("notice"), true);
  } else {
    arrange(); // the session has expired
  }
}

async function arrange() {
  shown.clear();
  cursor = "";
  at("orders").replaceChildren();
  for (const id of ["notice", "none", "more"]) {
    show(at(id), false);
  }
  show(at("outside"), !session());
  if (session()) {
    await more();
    await wanted();
  }
}

function redraw() {
  shown.forEach(draw);
}

at("enter").addEventListener("click", () => enter("why_orders"));
at("more").addEventListener("click", more);
changed.addEventListener("session", arrange);
addEventListener("hashchange", wanted);
(async () => {
  for (;;) {
    await pause(lookAgain);
    if (!document.hidden) {
      await follow().catch(() => {}); // the next round tries again
    }
  }
})();
arrange();
sync().then(() => everySecond(redraw));
