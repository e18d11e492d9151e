// The actions of a buyer on an order, for all pages that show orders.

import { call } from "./api.js";
import { now } from "./clock.js";
import { ask } from "./dialog.js";
import { leave } from "./go.js";

export const payable = (order) => order.status === "pending" && now() < Date.parse(order.expires_at);

export const reread = async (order) => (await call("GET", `/orders/${order.id}`)).data;

// pay opens the page of the payment. It throws a Refusal if the order can't be paid.
export async function pay(order) {
  const { data } = await call("POST", `/orders/${order.id}/payments`);
  leave(data.pay_url);
}

// cancel asks for a confirmation and returns the cancelled order, or null if the buyer keeps the order. It throws a Refusal if
// the order can't be cancelled.
export async function cancel(order) {
  return (await ask()) ? (await call("DELETE", `/orders/${order.id}`)).data : null;
}
