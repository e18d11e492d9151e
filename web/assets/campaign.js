// The page of a campaign: the choice among its sales. sale.js runs the rest of the page, for the sale that is chosen. The
// choice is the hash of the page's address, so that a reload keeps it and a link may contain it.

import "./page.js";
import { at, show } from "./dom.js";
import { money, number, say } from "./i18n.js";
import { orderOf } from "./order.js";
import { change, joinCampaign } from "./sale.js";
import { leftOf, stateOf } from "./sale-words.js";
import { drawPrice, whole as sum } from "./whole.js";

const list = at("variants");
let campaign = null; // as the server last sent it
let id = ""; // of the sale that is chosen

const inputOf = (saleID) => list.querySelector(`input[value="${CSS.escape(saleID)}"]`);

function choose(to) {
  const before = id;
  id = to; // change draws it
  if (to !== before && !change(to)) {
    id = before;
  }
  history.replaceState(history.state, "", id ? `#${id}` : location.pathname + location.search);
}

// follow chooses the sale that the hash of the address names or, without a hash, the sale that the buyer checked before this
// module ran. Any other hash, such as that of the link to the content, leaves the choice as it is.
function follow() {
  const named = location.hash.slice(1) || list.querySelector(":checked")?.value;
  choose(named && inputOf(named) ? named : id);
}

function take(said) {
  campaign = said;
  if (!id && said.sales.length === 1) {
    choose(said.sales[0].id);
  }
}

// whole returns the campaign in the form of a sale, for a buyer who has not chosen.
const whole = (sales) => ({ ...sales[0], ...sum(sales, stateOf), id: "", limit_per_user: campaign.limit_per_user });

// form returns what the button says in place of the purchase while no sale is chosen.
const form = (state) => (!id && state === "open" ? { word: "choose_first", enabled: true, unchosen: true } : null);

// ask moves the focus to the choice.
function ask() {
  list.querySelector("input:enabled")?.focus();
}

// most returns how many units of a sale one buyer may have.
const most = (sale) => Math.min(sale.limit_per_user, campaign.limit_per_user);

// limit returns the words for the limit of a sale and that of the campaign.
function limit(sale) {
  const all = number(campaign.limit_per_user);
  return most(sale) < campaign.limit_per_user ? ["limit_both", { n: number(most(sale)), all }] : ["limit_all", { n: all }];
}

function draw(sales, busy) {
  list.disabled = busy;
  const [first] = sales;
  const alike = sales.every((sale) => sale.price_cents === first.price_cents);
  for (const sale of sales) {
    const variant = variantOf(sale);
    const find = (selector) => variant.querySelector(selector);
    const state = stateOf(sale);
    const over = state === "sold_out" || state === "ended";
    variant.dataset.state = state;
    find("input").checked = sale.id === id;
    // A sale that is sold out or has ended can be chosen only by a buyer who has an order there, to see the order.
    find("input").disabled = over && sale.id !== id && !orderOf(sale.id);
    find(".price").textContent = money(sale.price_cents, sale.currency);
    show(find(".price"), !alike);
    const left = over || state === "paused" ? null : leftOf(sale, "some_left");
    say(find(".left"), ...(left ?? [`state_${state}`]));
  }
  const chosen = sales.filter((sale) => sale.id === id);
  drawPrice(at("price"), chosen.length > 0 ? chosen : sales);
}

function variantOf(sale) {
  const known = inputOf(sale.id);
  if (known) {
    return known.parentElement;
  }
  const made = at("variant").content.firstElementChild.cloneNode(true);
  made.querySelector("input").value = sale.id;
  made.querySelector("strong").textContent = sale.variant;
  list.append(made);
  return made;
}

list.addEventListener("change", ({ target }) => choose(target.value));
addEventListener("hashchange", follow);

joinCampaign({ take, whole, form, ask, most, limit, draw });
follow();
