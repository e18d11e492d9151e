// The page of all sales. The server has written it; this module keeps its figures up to date.

import "./page.js";
import { look } from "./api.js";
import { everySecond, now, sync } from "./clock.js";
import { at, fillBar, show } from "./dom.js";
import { duration, say, sayOr } from "./i18n.js";
import { leftOf } from "./sale-words.js";
import { drawPrice, whole } from "./whole.js";

// period is how often the figures are fetched while the page is visible, in milliseconds. A stream for each sale would
// take more connections than a browser has.
const period = 3000;

// atOnce is how many cards are shown at first, and how many more after each click on the button. A list that is no longer is
// fetched as a whole.
const atOnce = 24;

// wholeEvery says how often the whole of a longer list is fetched, in periods: for new sales, and those that are over. In all other
// periods, only the sales on the screen are fetched.
const wholeEvery = 20;

let cards = []; // what the cards show: each a sale, or a campaign as a whole
let shown = atOnce; // how many cards are shown
let turn = 0; // counts the periods

const seen = new Set(); // the ids of the cards on the screen
const screen = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    seen[isIntersecting ? "add" : "delete"](target.dataset.id);
  }
});

// group returns the sales, with one entry for all sales of a campaign. The title of a campaign's sale ends with the variant.
function group(sales) {
  const entries = new Map();
  for (const sale of sales) {
    const id = sale.campaign_id ?? sale.id;
    entries.set(id, [...(entries.get(id) ?? []), sale]);
  }
  return [...entries].map(([id, of]) => (id === of[0].id ? { ...of[0], path: `/sales/${id}` } : campaignOf(id, of)));
}

function campaignOf(id, sales) {
  const [first] = sales;
  return {
    ...first,
    ...whole(sales, ({ state }) => state),
    id,
    path: `/campaigns/${id}`,
    title: first.title.slice(0, -` · ${first.variant}`.length),
    sales,
    count: sales.length,
  };
}

function cardOf(sale) {
  const known = document.querySelector(`.card[data-id="${CSS.escape(sale.id)}"]`);
  if (known) {
    return known;
  }
  const card = at("card").content.firstElementChild.cloneNode(true);
  const find = (selector) => card.querySelector(selector);
  card.dataset.id = sale.id;
  find("a").href = sale.path;
  find("a").textContent = sale.title;
  if (sale.image_url) {
    find("img").dataset.instead = find("img").src;
    find("img").src = sale.image_url;
  }
  at("sales").append(card);
  screen.observe(card);
  return card;
}

function draw(sale) {
  const card = cardOf(sale);
  const find = (selector) => card.querySelector(selector);
  const starts = Date.parse(sale.starts_at) - now();
  const state = sale.state === "upcoming" && starts <= 0 ? "open" : sale.state;
  card.dataset.state = state;
  find(".state").dataset.state = state;
  if (state === "upcoming") {
    say(find(".state"), "starts_in", { time: () => duration(Date.parse(sale.starts_at) - now()) });
  } else {
    say(find(".state"), `state_${state}`);
  }
  drawPrice(find(".price"), sale.sales ?? [sale]);
  sayOr(find(".left"), leftOf(sale));
  if (sale.count) {
    say(find(".count"), "variants", { n: sale.count });
  }
  fillBar(find("progress"), sale);
}

// arrange shows as many cards as are to be shown.
function arrange() {
  const list = [...at("sales").children];
  list.forEach((card, i) => show(card, i < shown));
  show(at("more"), list.length > shown);
}

async function wholeList() {
  cards = group((await look("/sales")).sales);
  const there = new Set(cards.map((card) => card.id));
  for (const card of document.querySelectorAll(".card")) {
    if (!there.has(card.dataset.id)) {
      screen.unobserve(card);
      seen.delete(card.dataset.id);
      card.remove();
    }
  }
  show(at("none"), cards.length === 0);
  cards.forEach(draw);
  arrange();
}

// one fetches the sale or the campaign of a card.
async function one(card) {
  const said = await look(card.path);
  Object.assign(card, group(said.sales ?? [said])[0]);
  draw(card);
}

async function refresh() {
  if (!document.hidden) {
    try {
      if (cards.length <= atOnce || ++turn % wholeEvery === 0) {
        await wholeList();
      } else {
        await Promise.all(cards.filter(({ id }) => seen.has(id)).map(one));
      }
    } catch {
      // The last figures stay. The next refresh tries again.
    }
  }
  setTimeout(refresh, period);
}

at("more").addEventListener("click", () => {
  const next = at("sales").children[shown];
  shown += atOnce;
  arrange();
  next.querySelector("a").focus();
});

arrange();
document.querySelectorAll(".card").forEach((card) => screen.observe(card));
await sync();
refresh();
everySecond(() => cards.filter(({ id }) => seen.has(id)).forEach(draw));
