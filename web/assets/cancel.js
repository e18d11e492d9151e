// The cancellation of an order, for the pages that have the dialog "ask".

import { call } from "./api.js";
import { ask } from "./dialog.js";
import { noted } from "./order.js";

// cancel asks for a confirmation and returns the cancelled order, or null if the buyer keeps the order. It throws a Refusal if
// the order can't be cancelled.
export async function cancel(order) {
  return (await ask()) ? noted((await call("DELETE", `/orders/${order.id}`)).data) : null;
}
