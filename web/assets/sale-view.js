// This module draws the page of a sale from the data of sale.js.

import { session } from "./api.js";
import { now } from "./clock.js";
import { at, enable, show } from "./dom.js";
import { dateTime, duration, hush, money, number, say, zoned } from "./i18n.js";
import { payable } from "./order.js";

// mostChoices bounds the list of quantities.
const mostChoices = 99;

const goodNews = ["started", "back", "cancelled"];

const starts = (sale) => Date.parse(sale.starts_at);
const ends = (sale) => Date.parse(sale.ends_at);

// quantity returns the quantity that the buyer has chosen.
export const quantity = (sale) => (sale.limit_per_user > 1 ? Number(at("quantity").value) : 1);

// drawSale draws all of the page.
export function drawSale(view) {
  const { sale, state, stage, order } = view;
  at("stock").max = sale.quota;
  at("stock").value = sale.available;
  say(at("left"), "left", { left: number(sale.available), quota: number(sale.quota) });
  at("state").dataset.state = state;
  say(at("state"), `state_${state}`);
  drawClock(sale, state);
  drawForm(view);
  drawNotice(view.told);
  show(at("hold"), stage === "hold" || stage === "stuck");
  show(at("hold-again"), stage === "stuck");
  show(at("yours"), stage === "yours");
  if (stage === "yours") {
    drawOrder(sale, order);
  }
}

function drawClock(sale, state) {
  if (state === "upcoming") {
    say(at("clock"), "starts_at", { time: () => zoned(starts(sale)) });
  } else if (state === "ended" && now() < ends(sale)) {
    hush(at("clock")); // the operator has closed the sale
  } else if (state === "ended") {
    say(at("clock"), "ended_at", { time: () => zoned(ends(sale)) });
  } else {
    say(at("clock"), "ends_in", { time: () => duration(ends(sale) - now()) });
  }
}

// instead is what the function form of line.js or campaign.js has returned, if that takes the place of the purchase. most is how
// many units the buyer's call or the campaign allows. limit has the words for the limit, if they are not those of a single sale.
function drawForm({ sale, state, stage, told, cool, instead, most, limit }) {
  say(at("limit"), ...(limit ?? ["limit", { n: number(sale.limit_per_user) }]));
  const goes = instead ? !instead.unchosen && (instead.enabled || instead.busy) : state === "open";
  drawChoices(most ?? sale.limit_per_user, goes);
  show(at("buy"), (!instead?.hidden || told) && (stage === "choose" || stage === "asking"));
  show(at("button"), !instead?.hidden);
  show(at("terms"), !instead?.hidden);
  enable(at("button"), (instead ? instead.enabled : state === "open") && cool && stage === "choose");
  at("button").setAttribute("aria-busy", String(stage === "asking" || Boolean(instead?.busy)));
  if (instead?.word) {
    say(at("button"), instead.word, instead.places);
  } else if (state === "upcoming") {
    say(at("button"), "starts_in", { time: () => duration(starts(sale) - now()) });
  } else if (state === "open") {
    say(at("button"), sale.price_cents > 0 ? "buy" : "buy_free", { amount: money(sale.price_cents * quantity(sale), sale.currency) });
  } else {
    say(at("button"), `state_${state}`);
  }
  show(at("early"), state === "upcoming" && !instead);
  at("early").classList.toggle("away", session() !== null); // hidden, but it keeps its place: nothing moves
}

// drawChoices offers up to most units, while a click on the button goes for them.
function drawChoices(most, goes) {
  const options = at("quantity").options;
  show(at("choice"), most > 1 && goes);
  while (options.length > Math.min(most, mostChoices)) {
    options.remove(options.length - 1);
  }
  while (options.length < Math.min(most, mostChoices)) {
    options.add(new Option(options.length + 1));
  }
}

function drawNotice(told) {
  show(at("notice"), told);
  if (told) {
    at("notice").dataset.tone = goodNews.includes(told[0]) ? "good" : "bad";
    say(at("notice-text"), ...told);
    show(at("notice-orders"), told[0] === "refused_limit_reached");
  }
}

function drawOrder(sale, order) {
  const late = order.status === "pending" && !payable(order);
  const word = late ? "yours_late" : `yours_${order.status}`;
  const expires = Date.parse(order.expires_at);
  const amount = money(order.amount_cents, order.currency);
  const won = word === "yours_pending" && sale.mode === "draw" && !sale.campaign_id;
  say(at("yours-title"), won ? "yours_won" : word, { time: () => dateTime(expires) });
  say(at("yours-more"), `${word}_more`, { left: () => duration(expires - now()) });
  const { variant } = sale;
  say(at("yours-units"), variant ? "units_of" : "units", { variant, n: number(order.quantity), price: money(sale.price_cents, sale.currency) });
  at("yours-amount").textContent = amount;
  say(at("yours-number"), "order_number", { number: order.number });
  say(at("yours-pay"), order.amount_cents > 0 ? "pay" : "pay_free", { amount });
  show(at("yours-pay"), payable(order));
  show(at("yours-cancel"), payable(order));
  say(at("yours-back"), order.status === "pending" && !late ? "buy_more" : "back_to_sale");
  show(at("yours-back"), !payable(order) || sale.limit_per_user > order.quantity);
  at("yours").dataset.status = late ? "late" : order.status;
}
