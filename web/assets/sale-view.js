// This module draws the page of a sale from the data of sale.js.

import { session } from "./api.js";
import { at, enable, fill, fillBar, show } from "./dom.js";
import { number, say, sayOr } from "./i18n.js";
import { payable } from "./order.js";
import { buttonOf, clockOf, leftOf, orderWords, payOf, payWithinOf } from "./sale-words.js";
import { drawPrice } from "./whole.js";

const goodNews = ["started", "back", "back_some", "cancelled"];

// quantity returns the quantity that the buyer has chosen.
export const quantity = (sale) => (sale.limit_per_user > 1 ? Number(at("quantity").value) : 1);

// drawSale draws all of the page.
export function drawSale(view) {
  const { sale, state, stage, order } = view;
  if (!sale.campaign_id) { // campaign.js shows the prices of a campaign
    drawPrice(at("price"), [sale]);
  }
  sayOr(at("within"), payWithinOf(sale));
  fillBar(at("stock"), sale);
  sayOr(at("left"), leftOf(sale));
  at("state").dataset.state = state;
  say(at("state"), `state_${state}`);
  drawClock(sale, state);
  drawForm(view);
  drawNotice(view.told);
  show(at("hold"), stage === "hold" || stage === "stuck");
  show(at("hold-again"), stage === "stuck");
  show(at("yours"), stage === "yours");
  if (stage === "yours") {
    drawOrder(sale, order);
  }
}

function drawClock(sale, state) {
  sayOr(at("clock"), clockOf(sale, state));
}

// instead is what the function form of line.js or campaign.js has returned, if that takes the place of the purchase. most is how
// many units the buyer's call or the campaign allows. limit has the words for the limit, if they are not those of a single sale.
function drawForm({ sale, state, stage, told, cool, instead, most, limit }) {
  say(at("limit"), ...(limit ?? ["limit", { n: number(sale.limit_per_user) }]));
  const goes = instead ? !instead.unchosen && (instead.enabled || instead.busy) : state === "open";
  const choices = most ?? sale.limit_per_user;
  show(at("choice"), choices > 1 && goes);
  fill(at("quantity"), choices);
  show(at("buy"), (!instead?.hidden || told) && (stage === "choose" || stage === "asking"));
  show(at("button"), !instead?.hidden);
  show(at("terms"), !instead?.hidden);
  enable(at("button"), (instead ? instead.enabled : state === "open") && cool && stage === "choose");
  at("button").setAttribute("aria-busy", String(stage === "asking" || Boolean(instead?.busy)));
  if (instead?.word) {
    say(at("button"), instead.word, instead.places);
  } else {
    say(at("button"), ...buttonOf(sale, state, quantity(sale)));
  }
  show(at("early"), state === "upcoming" && !instead);
  at("early").classList.toggle("away", session() !== null); // hidden, but it keeps its place: nothing moves
}

function drawNotice(told) {
  show(at("notice"), told);
  if (told) {
    at("notice").dataset.tone = goodNews.includes(told[0]) ? "good" : "bad";
    say(at("notice-text"), ...told);
    show(at("notice-orders"), told[0] === "refused_limit_reached");
  }
}

function drawOrder(sale, order) {
  const { status, title, more, units, amount } = orderWords(order, sale);
  say(at("yours-title"), ...title);
  say(at("yours-more"), ...more);
  say(at("yours-units"), ...units);
  at("yours-amount").textContent = amount;
  say(at("yours-number"), "order_number", { number: order.number });
  say(at("yours-pay"), ...payOf(order));
  show(at("yours-pay"), payable(order));
  show(at("yours-cancel"), payable(order));
  say(at("yours-back"), status === "pending" ? "buy_more" : "back_to_sale");
  show(at("yours-back"), !payable(order) || sale.limit_per_user > order.quantity);
  at("yours").dataset.status = status;
}
