// The console's page of a campaign: the figures of its variants, live, and the actions of an operator on all or one of them.

import { call, pause } from "./api.js";
import { drafted, mostVariants, oneMore, open } from "./campaign-form.js";
import { everySecond, sync } from "./clock.js";
import { confirm } from "./confirm.js";
import { refresh as refreshLog, start as startLog } from "./console-log.js";
import { attend, element, older, onClick, put, repeat, row, sayWindow, stateOf, word } from "./desk.js";
import { at, show } from "./dom.js";
import { save } from "./download.js";
import { follow } from "./feed.js";
import { money, number, reason, say } from "./i18n.js";
import { priceOf, whole } from "./whole.js";

// period is how often the campaign is read again, in milliseconds. The stream sends neither how many units are held or paid, nor
// what other operators change.
const period = 2000;

const id = location.pathname.split("/").at(-1);
const variants = at("variants");
let campaign = null;
const another = oneMore(id, () => campaign.sales[0].currency);

const known = (saleID) => campaign?.sales.find((sale) => sale.id === saleID);

function take(said) {
  if (said.sales.some((sale) => older(sale, known(sale.id)))) {
    return;
  }
  campaign = said;
  document.title = `${campaign.title} · Flashsale`;
  at("title-shown").textContent = campaign.title;
  at("shop-link").href = `/campaigns/${id}`;
  at("line-link").href = `/console/sales/${id}`;
  show(at("line-link"), campaign.mode !== "rush");
  draw();
}

// draw shows the campaign, and the actions that are possible.
function draw() {
  if (!campaign) {
    return;
  }
  const { sales } = campaign;
  const all = whole(sales, stateOf);
  const sum = (name) => sales.reduce((n, sale) => n + sale[name], 0);
  const over = all.state === "ended";
  at("state").dataset.state = all.state;
  say(at("state"), `state_${all.state}`);
  show(at("state"), true);
  sayWindow(at("window"), campaign);
  at("price").textContent = priceOf(sales);
  say(at("limit"), "limit_all", { n: number(campaign.limit_per_user) });
  for (const [name, units] of Object.entries({ available: all.available, held: sum("held"), paid: sum("paid") })) {
    at(`tile-${name}`).querySelector(".value").textContent = number(units);
    say(at(`tile-${name}`).querySelector(".note"), "note_quota", { n: number(all.quota) });
  }
  put(variants, sales.map(lineOf), "none_yet");
  const focused = document.activeElement;
  show(at("pause"), !over && sales.some((sale) => sale.status === "live"));
  show(at("resume"), !over && sales.some((sale) => sale.status === "paused"));
  show(at("add"), !over && sales.length < mostVariants);
  show(at("close"), !over);
  if (at("actions").contains(focused) && focused.hidden) {
    focusAction();
  }
}

function lineOf(sale) {
  const state = stateOf(sale);
  const [link, shown, left, actions] = [element("a", "", sale.variant), word(`state_${state}`, "span", "state"), element("span"), element("span", "actions")];
  link.href = `/console/sales/${sale.id}`;
  link.id = `variant-${sale.id}`;
  shown.dataset.state = state;
  const bar = element("progress");
  [bar.max, bar.value] = [sale.quota, sale.available];
  bar.setAttribute("aria-hidden", "true");
  left.append(number(sale.available), bar);
  actions.dataset.for = "operator";
  if (state !== "ended") {
    actions.append(...(sale.mode === "rush" ? [sale.status === "paused" ? "resume" : "pause", "close"] : []).map((name) => {
      const button = word(name === "close" ? "close_sale" : name, "button", "plain");
      button.type = "button";
      Object.assign(button.dataset, { action: name, sale: sale.id });
      button.setAttribute("aria-describedby", link.id);
      return button;
    }));
  }
  return row([
    link, shown, left, number(sale.held), number(sale.paid), number(sale.quota), money(sale.price_cents, sale.currency),
    number(sale.limit_per_user), actions,
  ], [2, 3, 4, 5, 6, 7], [6, 7]);
}

// focusAction moves the focus to an action when the button that had it is gone.
function focusAction() {
  at("actions").querySelector("button:not([hidden])").focus();
}

// done shows the changed campaign and a notice.
function done(name, made, places) {
  if (made) {
    take(made);
    say(at("notice"), `done_${name}`, places);
    show(at("notice"), true);
    refreshLog();
  }
}

for (const [name, grave] of [["pause", false], ["resume", false], ["close", true]]) {
  at(name).addEventListener("click", async () => {
    done(`${name}_all`, await confirm(`${name}_all`, {
      places: { left: () => number(whole(campaign.sales, stateOf).available) },
      grave,
      work: async () => (await call("POST", `/admin/campaigns/${id}/${name}`)).data,
    }));
    if (at(name).hidden) {
      focusAction();
    }
  });
}

// The cells of the table may be replaced, so the table listens for its buttons.
variants.addEventListener("click", async ({ target }) => {
  const button = target.closest("button");
  if (!button) {
    return;
  }
  const { action, sale: saleID } = button.dataset;
  const { variant, available } = known(saleID);
  const places = { variant, left: number(available) };
  done(`${action}_one`, await confirm(`${action}_one`, {
    places,
    grave: action === "close",
    work: async () => {
      await call("POST", `/admin/sales/${saleID}/${action}`);
      return read();
    },
  }), places);
  at(`variant-${saleID}`).focus(); // the button may be gone
});

at("edit").addEventListener("click", edit);

function edit() {
  open(campaign, (made) => done("edit", made));
}

at("add").addEventListener("click", add);

function add() {
  another.open(null, (made) => done("add_variant", made));
}

onClick(at("csv"), at("csv-error"), () => save(`/admin/campaigns/${id}/sales.csv`, `campaign-${id}.csv`, at("csv-told")));

function line(said) {
  at("line").dataset.line = said;
  at("figures").classList.toggle("stale", said === "broken");
  show(at("line"), true);
  say(at("line"), { connecting: "connecting", live: "live", broken: "connection_broken" }[said]);
}

function hear(event, { sales }) {
  if (event !== "stocks") {
    return; // the line's own page shows it
  }
  for (const { id: saleID, state, quota, available, ...stock } of sales) {
    const sale = known(saleID);
    if (sale && !older(stock, sale)) { // the revision stays as it is: the status comes only with an answer
      Object.assign(sale, { state, quota, available });
    }
  }
  draw();
}

const read = async () => (await call("GET", `/admin/campaigns/${id}`)).data;

async function refresh() {
  try {
    take(await read());
  } catch {
    // line() has shown whether there is a connection
  }
  await refreshLog();
}

async function first(signal) {
  while (!campaign && !signal.aborted) {
    try {
      take(await read());
    } catch (refusal) {
      if (refusal.status === 404) {
        show(at("unknown"), true);
        show(at("desk"), false);
        return;
      }
      line("broken");
      await pause(period);
    }
  }
}

attend(async (signal) => {
  line("connecting");
  await first(signal);
  if (!campaign || signal.aborted) {
    return;
  }
  startLog(`/admin/campaigns/${id}/operations`);
  repeat(signal, period, refresh);
  follow(`/campaigns/${id}/events`, { signal, hear, line }).catch((refusal) => {
    line("broken");
    reason(at("line"), refusal);
  });
  if (drafted(campaign) && at("campaign-form").hidden) {
    edit();
  } else if (another.drafted(null) && at("variant-form").hidden) {
    add();
  }
});
sync().then(() => everySecond(draw));
