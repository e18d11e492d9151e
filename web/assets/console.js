// The console's first page: all sales, the running instances, and the form for a new sale.

import { call } from "./api.js";
import { everySecond, sync } from "./clock.js";
import { attend, repeat, sayWindow, stateOf } from "./desk.js";
import { at, show } from "./dom.js";
import { drafted, open } from "./form.js";
import { hush, money, number, reason, say } from "./i18n.js";
import { drawInstances } from "./instances.js";

// atOnce is how many sales are fetched at a time.
const atOnce = 30;

// period is how often the newest sales and the instances are read again while the page is visible, in milliseconds.
const period = 3000;

let rows = new Map(); // by the sale's id: {sale, line}, in the order of the table
let cursor = null; // of the sales that aren't shown yet; null before the first answer

const page = async (from) => (await call("GET", `/admin/sales?limit=${atOnce}&cursor=${encodeURIComponent(from)}`)).data;

// newest reads the newest sales again. Sales are never deleted, so those that are not shown yet belong at the top.
async function newest() {
  const { sales, next_cursor: next } = await page("");
  sales.toReversed().filter(({ id }) => !rows.has(id)).forEach((sale) => at("sales").prepend(lineOf(sale)));
  sales.forEach(draw);
  cursor ??= next;
  show(at("more"), cursor !== "");
  show(at("none"), rows.size === 0);
}

async function older() {
  const { sales, next_cursor: next } = await page(cursor);
  sales.filter(({ id }) => !rows.has(id)).forEach((sale) => at("sales").append(lineOf(sale)));
  sales.forEach(draw);
  cursor = next;
  show(at("more"), cursor !== "");
}

function lineOf(sale) {
  const line = at("sale").content.firstElementChild.cloneNode(true);
  line.querySelector("a").href = `/console/sales/${sale.id}`;
  rows.set(sale.id, { line });
  return line;
}

function draw(sale) {
  const { line } = rows.get(sale.id);
  rows.set(sale.id, { sale, line });
  const find = (selector) => line.querySelector(selector);
  const state = stateOf(sale);
  find("a").textContent = sale.title;
  sayWindow(find(".window"), sale);
  find(".state").dataset.state = state;
  say(find(".state"), `state_${state}`);
  find(".left").textContent = number(sale.available);
  find("progress").max = sale.quota;
  find("progress").value = sale.available;
  find(".quota").textContent = number(sale.quota);
  find(".price").textContent = money(sale.price_cents, sale.currency);
  find(".limit").textContent = number(sale.limit_per_user);
}

async function refresh() {
  try {
    await newest();
    const { instances } = (await call("GET", "/admin/stats")).data;
    drawInstances(Object.entries(instances).map(([id, { purchases, reported_at_ms: reported, ...figures }]) => ({
      ...figures, id, requests: Object.values(purchases).reduce((a, b) => a + b, 0), reported_at: new Date(reported).toISOString(),
    })));
    show(at("notice"), false);
    hush(at("notice"));
  } catch (refusal) {
    reason(at("notice"), refusal);
    show(at("notice"), true);
  }
}

const made = (sale) => location.assign(`/console/sales/${sale.id}`);

at("new").addEventListener("click", () => open(null, made));
at("more").addEventListener("click", () => older().catch((refusal) => {
  reason(at("notice"), refusal);
  show(at("notice"), true);
}));

attend((signal) => {
  rows = new Map();
  cursor = null;
  at("sales").replaceChildren();
  repeat(signal, period, refresh);
  if (drafted(null) && at("form").hidden) {
    open(null, made);
  }
});
sync().then(() => everySecond(() => rows.forEach(({ sale }) => sale && draw(sale))));
