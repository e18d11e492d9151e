// The console's first page: all sales and campaigns, the running instances, and the forms for new ones.

import { call } from "./api.js";
import { drafted as draftedCampaign, open as openCampaign } from "./campaign-form.js";
import { everySecond, sync } from "./clock.js";
import { range } from "./csv-range.js";
import { attend, repeat, sayWindow, stateOf } from "./desk.js";
import { at, show } from "./dom.js";
import { visit } from "./go.js";
import { hush, number, reason, say } from "./i18n.js";
import { drawInstances } from "./instances.js";
import { drafted, open } from "./sale-form.js";
import { sheet } from "./sheet.js";
import { priceOf, whole } from "./whole.js";

// atOnce is how many sales or campaigns are fetched at a time.
const atOnce = 30;

// period is how often the newest sales and campaigns and the instances are read again while the page is visible, in milliseconds.
const period = 3000;

// listOf returns a list of sales or campaigns in the table whose body has the id name. page(cursor) reads some entries, the
// newest first, and draw(line, entry) draws one.
function listOf(name, page, draw) {
  const body = at(name);
  const more = at(`${name}-more`);
  let rows = new Map(); // by the entry's id: {entry, line}
  let cursor = null; // where the older entries begin that are not shown; null before the first answer

  function put({ entries, next }, place) {
    entries.filter(({ id }) => !rows.has(id)).forEach((entry) => {
      const line = at(`${name}-row`).content.firstElementChild.cloneNode(true);
      rows.set(entry.id, { line });
      body[place](line);
    });
    entries.forEach((entry) => {
      const { line } = rows.get(entry.id);
      rows.set(entry.id, { entry, line });
      draw(line, entry);
    });
    show(more, next !== "");
  }

  // newest reads the newest entries again. No entry is ever deleted, so the unshown entries before the first known one are new
  // and belong at the top.
  async function newest() {
    const { entries, next } = await page("");
    const firstKnown = entries.findIndex(({ id }) => rows.has(id));
    const newer = entries.filter(({ id }, i) => rows.has(id) || firstKnown < 0 || i < firstKnown); // the rest is for older()
    cursor ??= next;
    put({ entries: newer.toReversed(), next: cursor }, "prepend");
    return rows.size;
  }

  async function older() {
    const read = await page(cursor);
    cursor = read.next;
    put(read, "append");
  }

  function clear() {
    rows = new Map();
    cursor = null;
    body.replaceChildren();
  }

  more.addEventListener("click", () => older().catch(complain));
  return { newest, clear, redraw: () => rows.forEach(({ entry, line }) => draw(line, entry)) };
}

async function someSales(from) {
  const { sales, next_cursor: next } = (await call("GET", `/admin/sales?alone=true&limit=${atOnce}&cursor=${encodeURIComponent(from)}`)).data;
  return { entries: sales, next };
}

async function someCampaigns(from) {
  const { campaigns, next_cursor: next } = (await call("GET", `/admin/campaigns?limit=${atOnce}&cursor=${encodeURIComponent(from)}`)).data;
  return { entries: campaigns, next };
}

function drawSale(line, sale) {
  drawLine(line, `/console/sales/${sale.id}`, sale, { ...sale, state: stateOf(sale) }, [sale]);
  line.querySelector(".price").textContent = priceOf([sale]);
}

function drawCampaign(line, campaign) {
  const { sales } = campaign;
  drawLine(line, `/console/campaigns/${campaign.id}`, campaign, whole(sales, stateOf), sales);
  line.querySelector(".price").textContent = priceOf(sales);
  line.querySelector(".kinds").textContent = number(sales.length);
}

function drawLine(line, path, { title, starts_at, ends_at, limit_per_user: limit }, { state, available, quota }, sales) {
  const find = (selector) => line.querySelector(selector);
  find("a").href = path;
  find("a").textContent = title;
  sayWindow(find(".window"), { starts_at, ends_at });
  find(".state").dataset.state = state;
  say(find(".state"), `state_${state}`);
  find(".left").textContent = number(available);
  find("progress").max = quota;
  find("progress").value = available;
  find(".sold").textContent = number(sales.reduce((n, { held, paid }) => n + held + paid, 0));
  find(".quota").textContent = number(quota);
  find(".limit").textContent = number(limit);
}

function complain(refusal) {
  reason(at("notice"), refusal);
  show(at("notice"), true);
}

const sales = listOf("sales", someSales, drawSale);
const campaigns = listOf("campaigns", someCampaigns, drawCampaign);

async function refresh() {
  try {
    const [some, groups] = await Promise.all([sales.newest(), campaigns.newest()]);
    show(at("none"), some === 0 && at("sales-more").hidden);
    show(at("all-campaigns"), groups > 0);
    const { instances } = (await call("GET", "/admin/stats")).data;
    drawInstances(Object.entries(instances).map(([id, { purchases, reported_at_ms: reported, ...figures }]) => ({
      ...figures, id, requests: Object.values(purchases).reduce((a, b) => a + b, 0), reported_at: new Date(reported).toISOString(),
    })));
    show(at("notice"), false);
    hush(at("notice"));
  } catch (refusal) {
    complain(refusal);
  }
}

const made = (sale) => visit(`/console/sales/${sale.id}`);
const madeCampaign = (campaign) => visit(`/console/campaigns/${campaign.id}`);

at("new").addEventListener("click", () => open(null, made));
at("new-campaign").addEventListener("click", () => openCampaign(null, madeCampaign));
sheet(at("new-sheet"), madeCampaign);
range(() => "/admin", () => "orders-all.csv");

attend((signal) => {
  sales.clear();
  campaigns.clear();
  repeat(signal, period, refresh);
  if (drafted(null) && at("form").hidden) {
    open(null, made);
  } else if (draftedCampaign(null) && at("campaign-form").hidden) {
    openCampaign(null, madeCampaign);
  }
});
sync().then(() => everySecond(() => {
  sales.redraw();
  campaigns.redraw();
}));
