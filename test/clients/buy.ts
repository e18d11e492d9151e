// Buys one unit of the only sale with the client that is generated from web/openapi.yaml: node buy.js URL

import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const api = createClient<paths>({ baseUrl: process.argv[2] });

// got returns the data of an answer, and throws the problem document of a refusal.
function got<T>({ data, error }: { data?: T; error?: unknown }): T {
  if (data === undefined) {
    throw new Error(JSON.stringify(error));
  }
  return data;
}

const account = { name: `ts-${Date.now()}`, password: "correct horse" };
got(await api.POST("/api/v1/users", { body: account }));
const { token } = got(await api.POST("/api/v1/sessions", { body: account }));
api.use({
  onRequest({ request }) {
    request.headers.set("Authorization", `Bearer ${token}`);
  },
});

const sale = got(await api.GET("/api/v1/sales")).sales[0];
if (!sale) {
  throw new Error("there is no sale");
}
const { path } = got(await api.POST("/api/v1/sales/{sale}/path", { params: { path: { sale: sale.id } } }));
const { id } = got(await api.POST("/api/v1/sales/{sale}/{path}/orders", {
  params: { path: { sale: sale.id, path }, header: { "Idempotency-Key": crypto.randomUUID(), Prefer: "wait=10" } },
  body: { quantity: 1 },
}));
const payment = got(await api.POST("/api/v1/orders/{id}/payments", { params: { path: { id } } }));
got(await api.POST("/pay/{payment}", {
  params: { path: { payment: payment.payment_id } },
  body: { choice: "pay" },
  headers: { "Content-Type": "application/x-www-form-urlencoded" },
  parseAs: "text",
}));
const { status } = got(await api.GET("/api/v1/orders/{id}", { params: { path: { id } } }));
console.log(`order ${id} is ${status}`);
