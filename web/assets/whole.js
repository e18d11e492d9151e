// The sales of a campaign taken together.

import { show } from "./dom.js";
import { money } from "./i18n.js";

// inviting are the states of sales, the most inviting one first. A campaign has the first of these that one of its sales has.
const inviting = ["open", "upcoming", "paused", "sold_out", "ended"];

// whole returns the sums of sales, which are undefined if the sales hide their stock, with the best that they then say of it, and
// their common state, as {available, quota, stock, state}. stateOf returns the state of a sale.
export function whole(sales, stateOf) {
  const states = sales.map(stateOf);
  const sum = (name) => (sales[0][name] === undefined ? undefined : sales.reduce((n, sale) => n + sale[name], 0));
  const stock = ["plenty", "few"].find((said) => sales.some((sale) => sale.stock === said));
  return { available: sum("available"), quota: sum("quota"), stock, state: inviting.find((state) => states.includes(state)) };
}

// priceOf returns the price of sales, or the lowest and the highest price.
export function priceOf(sales) {
  const [{ currency }] = sales;
  const cents = sales.map((sale) => sale.price_cents);
  const [least, most] = [Math.min(...cents), Math.max(...cents)];
  return least === most ? money(least, currency) : `${money(least, currency)} – ${money(most, currency)}`;
}

// drawPrice shows the price of sales in the elements of a place, and their original price if it is the same for all.
export function drawPrice(place, sales) {
  const [{ price_cents: cents, original_price_cents: before, currency }] = sales;
  const reduced = before > cents && sales.every((sale) => sale.price_cents === cents && sale.original_price_cents === before);
  place.querySelector("strong").textContent = priceOf(sales);
  place.querySelector("s").textContent = money(before, currency);
  show(place.querySelector("s"), reduced);
  show(place.querySelector(".unseen"), reduced);
}
