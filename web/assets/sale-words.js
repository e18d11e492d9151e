// What a sale and an order are at this moment, and the words for them: [key, places] for say(). This module changes no element,
// so the page of a sale and the element of embed.js share it.

import { now } from "./clock.js";
import { dateTime, duration, money, number, wordOf, zoned } from "./i18n.js";
import { payable } from "./order.js";

// stateOf returns the state of a sale at this moment.
export function stateOf({ state: said, available, starts_at: start, ends_at: end }) {
  if (now() >= Date.parse(end)) {
    return "ended";
  }
  if (said === "upcoming" && now() >= Date.parse(start)) {
    return available === 0 ? "sold_out" : "open"; // undefined if the sale hides its stock
  }
  return said;
}

// kindOf returns what buyers of a sale that is in line enter: line, draw or list.
export const kindOf = (sale) => (sale.mode === "rush" ? "list" : sale.mode);

// isLined returns whether units go by call. A waiting list begins when the sale is sold out.
export const isLined = (sale, state) => Boolean(sale.in_line || (sale.waiting_list && state === "sold_out"));

// leftOf returns the words for what is left, or null if a sale that hides its stock says nothing. exact is the key for the numbers.
export function leftOf({ available, quota, stock }, exact = "left") {
  if (quota !== undefined) {
    return [exact, { left: number(available), quota: number(quota) }];
  }
  return stock ? [`stock_${stock}`] : null;
}

// clockOf returns null if the operator has closed the sale.
export function clockOf({ starts_at: starts, ends_at: end }, state) {
  const ends = Date.parse(end);
  if (state === "upcoming") {
    return ["starts_at", { time: () => zoned(Date.parse(starts)) }];
  }
  if (state === "ended") {
    return now() < ends ? null : ["ended_at", { time: () => zoned(ends) }];
  }
  return ["ends_in", { time: () => duration(ends - now()) }];
}

// buttonOf returns what the button says that buys.
export function buttonOf(sale, state, quantity) {
  if (state === "upcoming") {
    return ["starts_in", { time: () => duration(Date.parse(sale.starts_at) - now()) }];
  }
  const word = sale.price_cents > 0 ? "buy" : "buy_free";
  return state === "open" ? [word, { amount: money(sale.price_cents * quantity, sale.currency) }] : [`state_${state}`];
}

// payWithinOf says the time to pay in the largest unit that needs no fraction.
export function payWithinOf({ pay_timeout_seconds: seconds }) {
  const [unit, size] = [["hours", 3600], ["minutes", 60], ["seconds", 1]].find(([, size]) => seconds % size === 0);
  return [`pay_within_${unit}`, { n: number(seconds / size) }];
}

// refusalOf returns the notice about an attempt that was refused.
export function refusalOf(refusal, { available }, quantity) {
  const few = refusal.code === "sold_out" && available > 0 && available < quantity;
  return few ? ["refused_too_few", { left: number(available) }] : [wordOf(refusal)];
}

// newsOf returns the notice about a new state for a buyer who waits, or null.
export function newsOf(from, to, { available }) {
  if (to === "paused" || to === "sold_out") {
    return [`${to}_wait`];
  }
  if (to === "open" && from === "upcoming") {
    return ["started"];
  }
  if (to !== "open" || from !== "sold_out") {
    return null;
  }
  return available === undefined ? ["back_some"] : ["back", { left: number(available) }];
}

// isPrize returns whether the orders of a sale are what its draw gives.
export const isPrize = (sale) => sale.mode === "draw" && !sale.campaign_id;

// payOf returns what the button says that leads to the payment.
export const payOf = (order) => [order.amount_cents > 0 ? "pay" : "pay_free", { amount: money(order.amount_cents, order.currency) }];

// orderWords returns the status of an order, which is "late" if it can no longer be paid, with its words.
export function orderWords(order, sale) {
  const { variant, price_cents: cents } = sale;
  const status = order.status === "pending" && !payable(order) ? "late" : order.status;
  const expires = Date.parse(order.expires_at);
  return {
    status,
    title: [status === "pending" && isPrize(sale) ? "yours_won" : `yours_${status}`, { time: () => dateTime(expires) }],
    more: [`yours_${status}_more`, { left: () => duration(expires - now()) }],
    units: [variant ? "units_of" : "units", { variant, n: number(order.quantity), price: money(cents, order.currency) }],
    amount: money(order.amount_cents, order.currency),
  };
}
