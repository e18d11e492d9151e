// The console's page of a campaign: the figures of its variants, live, and the actions of an operator on all or one of them.

import { call } from "./api.js";
import { campaignCopy, drafted, mostVariants, oneMore, open } from "./campaign-form.js";
import { confirm } from "./confirm.js";
import { element, older, onClick, put, row, stateOf, word } from "./desk.js";
import { at, show } from "./dom.js";
import { save } from "./download.js";
import { draw as drawFigures } from "./figures.js";
import { visit } from "./go.js";
import { money, number, say } from "./i18n.js";
import { done as tellDone, facts, focusAction, head, id, offer, relisten, run, withStock } from "./subject.js";
import { priceOf, whole } from "./whole.js";

const variants = at("variants");
const another = oneMore(id, () => campaign.sales[0].currency);
let campaign = null;
let figures = new Map(); // the last figures of each sale, by its id

const known = (saleID) => campaign?.sales.find((sale) => sale.id === saleID);

function take(said) {
  if (said.sales.some((sale) => older(sale, known(sale.id)))) {
    return;
  }
  const more = campaign && said.sales.some(({ id: saleID }) => !known(saleID));
  campaign = { ...said, sales: said.sales.map((sale) => withStock(sale, known(sale.id))) };
  if (more) { // the stream sends nothing of a variant that was added after it began
    figures = new Map();
    relisten();
  }
  head(campaign, `/campaigns/${id}`);
  at("line-link").href = `/console/sales/${id}`;
  show(at("line-link"), campaign.mode !== "rush");
  draw();
}

// draw shows the campaign without its live figures, and the actions that are possible.
function draw() {
  const { sales } = campaign;
  const { state } = whole(sales, stateOf);
  const over = state === "ended";
  facts(campaign, state, sales);
  at("price").textContent = priceOf(sales);
  say(at("limit"), "limit_all", { n: number(campaign.limit_per_user) });
  put(variants, sales.map(lineOf), "none_yet");
  offer({
    pause: !over && sales.some((sale) => sale.status === "live"),
    resume: !over && sales.some((sale) => sale.status === "paused"),
    add: !over && sales.length < mostVariants,
    close: !over,
  });
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

// done shows the changed campaign and a notice.
function done(name, made, places) {
  if (made) {
    take(made);
    tellDone(name, places);
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

at("duplicate").addEventListener("click", duplicate);

function duplicate() {
  open(null, (made) => visit(`/console/campaigns/${made.id}`), campaignCopy(campaign));
}

at("add").addEventListener("click", add);

function add() {
  another.open(null, (made) => done("add_variant", made));
}

onClick(at("sheet"), at("sheet-error"), () => save(`/admin/campaigns/${id}/sales.csv`, `campaign-${id}.csv`, at("sheet-told")));

// hear keeps the figures of one sale. Those of all sales come one after the other, and are shown together.
function hear(said) {
  const sale = known(said.sale_id);
  if (!sale || older(said, sale)) {
    return;
  }
  const { state, status, revision, quota, available, held, paid } = said;
  Object.assign(sale, { state, status, revision, quota, available, held, paid });
  figures.set(sale.id, said);
  if (figures.size === campaign.sales.length) {
    draw();
    drawFigures([...figures.values()]);
    figures = new Map();
  }
}

const read = run(`/admin/campaigns/${id}`, {
  take,
  hear,
  draw,
  opened() {
    if (drafted(campaign) && at("campaign-form").hidden) {
      edit();
    } else if (drafted(null, campaign) && at("campaign-form").hidden) {
      duplicate();
    } else if (another.drafted(null) && at("variant-form").hidden) {
      add();
    }
  },
  labelOf: (saleID) => known(saleID)?.variant ?? "",
});
