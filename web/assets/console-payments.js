// The console's payments: those in one state, the newest first.

import { call } from "./api.js";
import { attend, coded, element, onClick, put, repeat, row, stamp } from "./desk.js";
import { at, show } from "./dom.js";
import { hush, money, number, reason, say } from "./i18n.js";

// atOnce is how many payments are fetched at a time.
const atOnce = 20;

// period is how often the newest payments are read again while the page is visible, in milliseconds.
const period = 5000;

const error = at("payments-error");
let shown = []; // the payments that are in the list
let cursor = "";
let unfolded = false; // older payments are shown, so the list is not refreshed
let turn = 0; // counts the requests: an answer to an earlier one is ignored

for (const status of ["open", "refund_due", "succeeded", "failed", "refunded"]) {
  const option = new Option("", status);
  say(option, `payment_${status}`);
  at("payments-status").append(option);
}

// newest reads the newest payments.
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
  const status = at("payments-status").value;
  const { data } = await call("GET", `/admin/payments?status=${status}&limit=${atOnce}&cursor=${encodeURIComponent(from)}`);
  if (mine === turn) {
    draw(data, from === "");
  }
}

function draw({ payments, next_cursor: next }, anew) {
  shown = anew ? payments : [...shown, ...payments];
  put(at("payments"), shown.map(lineOf), "payments_none");
  cursor = next;
  show(at("payments-more"), cursor !== "");
  hush(error);
  if (shown.length > 0) {
    say(at("payments-told"), cursor ? "orders_newest" : "orders_all", { n: number(shown.length) });
  } else {
    hush(at("payments-told"));
  }
}

function lineOf({
  order_id: order, order_number: orderNumber, user_id: user, provider, reference, provider_txn_id: transaction,
  amount_cents: cents, currency, created_at: created, expires_at: expires,
}) {
  const who = element("span");
  who.append(element("strong", "id", orderNumber), element("span", "id long quiet below", order), element("span", "quiet below", user));
  return row([
    who, coded("provider", provider), idOf(reference), idOf(transaction),
    money(cents, currency), stamp(created), stamp(expires),
  ], [4]);
}

const idOf = (id) => (id ? element("span", "id long", id) : "–");

at("payments-status").addEventListener("change", newest);
onClick(at("payments-more"), error, async () => {
  unfolded = true;
  await page(cursor);
});

attend((signal) => {
  unfolded = false;
  repeat(signal, period, async () => {
    if (!unfolded) {
      await newest();
    }
  });
});
