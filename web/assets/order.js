// A buyer's orders: how they are read and paid, and what this browser knows of orders that are to be paid.

import { call, session } from "./api.js";
import { now } from "./clock.js";
import { leave } from "./go.js";
import { lasting, passing } from "./store.js";

export const payable = (order) => order.status === "pending" && now() < Date.parse(order.expires_at);

const place = () => `unpaid ${session()?.id}`;

// unpaid returns the user's orders that can be paid, the newest last, as far as a page of this browser has seen them.
export const unpaid = () => (lasting.read(place()) ?? []).filter(payable);

// noted stores an order while it can be paid, forgets it afterwards, and returns it. All tabs get the event "storage".
export function noted(order) {
  const { id, sale_id: saleID, status, expires_at: expires } = order;
  const others = unpaid().filter((other) => other.id !== id);
  lasting.write(place(), payable(order) ? [...others, { id, sale_id: saleID, status, expires_at: expires }] : others);
  return order;
}

// remember stores which order of a sale this tab shows; null: none.
export const remember = (saleID, orderID) => passing.write(`order ${saleID}`, orderID);

// orderOf returns the id of the order of a sale that this tab shows or, if it shows none, of the newest that can be paid.
export const orderOf = (saleID) => passing.read(`order ${saleID}`) ?? unpaid().findLast((order) => order.sale_id === saleID)?.id;

export const reread = async (order) => noted((await call("GET", `/orders/${order.id}`)).data);

// pay opens the page of the payment. It throws a Refusal if the order can't be paid.
export async function pay(order) {
  const { data } = await call("POST", `/orders/${order.id}/payments`);
  leave(data.pay_url);
}
