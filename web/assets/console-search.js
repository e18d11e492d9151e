// The console's search for orders of all sales. An order that is found alone is shown with its history and its payments.

import { call } from "./api.js";
import { start } from "./console-orders.js";
import { attend, coded, element, put, row, stamp } from "./desk.js";
import { at, show } from "./dom.js";
import { money, reason } from "./i18n.js";

const words = (new URLSearchParams(location.search).get("q") ?? "").trim();
at("q").value = words;

// whole are the characters of an order's id. An attempt that was refused has such an id, but is in no list of orders.
const whole = 48;

let shown = ""; // the id of the order whose file is shown

async function file() {
  try {
    draw((await call("GET", `/admin/orders/${shown}`)).data);
  } catch (refusal) {
    if (refusal.status !== 404) {
      reason(at("orders-error"), refusal);
    }
  }
}

function draw({ order, payments, history }) {
  put(at("history"), history.map((event) => lineOf(event, order)), "log_none");
  put(at("payments"), payments.map(paymentOf), "order_payments_none");
  show(at("file"), true);
}

function lineOf({ at: when, actor, action, detail }, { user_id: user }) {
  const [who, what] = [element("span"), element("span")];
  who.append(actor === user ? coded("actor", "buyer") : element("span", "id", actor || "–"));
  what.append(coded("action", action), element("span", "quiet below id long", detail));
  return row([stamp(when), who, what]);
}

function paymentOf({ id, provider, reference, provider_txn_id: transaction, amount_cents: cents, currency, status }) {
  const what = element("span");
  what.append(coded("provider", provider), element("span", "id long quiet below", id));
  const idOf = (text) => (text ? element("span", "id long", text) : "–");
  return row([what, coded("payment", status), money(cents, currency), idOf(reference), idOf(transaction)], [2]);
}

const nameOf = (sale, { title, variant }) => [title, variant].filter(Boolean).join(" · ");

attend(async () => {
  show(at("file"), false);
  const orders = await start("/admin", "", file, nameOf);
  shown = orders.length === 1 ? orders[0].id : words;
  if (words && (orders.length === 1 || words.length === whole)) {
    await file();
  }
});
