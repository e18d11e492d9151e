// The console's first page: all sales and campaigns, the running instances, and the forms for new ones.

import { call } from "./api.js";
import { drafted as draftedCampaign, open as openCampaign } from "./campaign-form.js";
import { range } from "./csv-range.js";
import { attend, coded, element, onClick, put, repeat, row, sayWindow, word } from "./desk.js";
import { at, show } from "./dom.js";
import { visit } from "./go.js";
import { hush, number, reason } from "./i18n.js";
import { drawInstances } from "./instances.js";
import { drafted, open } from "./sale-form.js";
import { sheet } from "./sheet.js";
import { priceOf } from "./whole.js";

// atOnce is how many sales and campaigns are fetched at a time.
const atOnce = 50;

// period is how often the first page of the list and the instances are read again while the page is visible, in milliseconds.
const period = 3000;

let shown = []; // the sales and campaigns that are in the list
let cursor = "";
let unfolded = false; // more than the first page is shown, so the list is not refreshed
let turn = 0; // counts the requests: an answer to an earlier one is ignored

const filter = () => Object.fromEntries(new FormData(at("filter")));

async function page(from) {
  const mine = ++turn;
  const asked = filter();
  const { data } = await call("GET", `/admin/catalog?${new URLSearchParams({ ...asked, q: asked.q.trim(), limit: atOnce, cursor: from })}`);
  if (mine !== turn) {
    return;
  }
  shown = from ? [...shown, ...data.entries] : data.entries;
  cursor = data.next_cursor;
  put(at("sales"), shown.map(lineOf), asked.q || asked.state || asked.mode ? "no_sale_fits" : "no_sales_yet");
  show(at("sales-more"), cursor !== "");
  hush(at("sales-error"));
}

function lineOf(entry) {
  const { id, title, campaign, state, sales, available, quota, held, paid } = entry;
  const [name, when, left, kind] = [element("span"), element("span", "quiet below"), element("span"), coded("state", state)];
  const link = element("a", "", title);
  link.href = `/console/${campaign ? "campaigns" : "sales"}/${id}`;
  name.append(link);
  if (campaign) {
    name.append(word("campaign_of", "span", "below", { n: number(sales) }));
  }
  sayWindow(when, entry);
  name.append(when);
  kind.className = "state";
  kind.dataset.state = state;
  const bar = document.createElement("progress");
  bar.ariaHidden = "true";
  bar.max = quota;
  bar.value = available;
  left.append(number(available), bar);
  const prices = [entry.lowest_price_cents, entry.highest_price_cents].map((cents) => ({ price_cents: cents, currency: entry.currency }));
  return row([name, kind, number(held + paid), left, number(quota), priceOf(prices), number(entry.limit_per_user)], [2, 3, 4, 5, 6], [3, 4, 5, 6]);
}

async function newest() {
  unfolded = false;
  try {
    await page("");
  } catch (refusal) {
    reason(at("sales-error"), refusal);
  }
}

async function refresh() {
  try {
    if (!unfolded) {
      await page("");
    }
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

at("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  newest();
});
at("filter").addEventListener("change", newest);
onClick(at("sales-more"), at("sales-error"), () => {
  unfolded = true;
  return page(cursor);
});

const made = (sale) => visit(`/console/sales/${sale.id}`);
const madeCampaign = (campaign) => visit(`/console/campaigns/${campaign.id}`);

at("new").addEventListener("click", () => open(null, made));
at("new-campaign").addEventListener("click", () => openCampaign(null, madeCampaign));
sheet(at("new-sheet"), madeCampaign);
range(() => "/admin", () => "orders-all.csv");

attend((signal) => {
  unfolded = false;
  repeat(signal, period, refresh);
  if (drafted(null) && at("form").hidden) {
    open(null, made);
  } else if (draftedCampaign(null) && at("campaign-form").hidden) {
    openCampaign(null, madeCampaign);
  }
});
