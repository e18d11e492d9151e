// The page of one sale: its stock and clock, the button, and the buyer's order. The variables below hold all that the page shows;
// sale-view.js draws it. On the page of a campaign, the sale is the one that the buyer has chosen in campaign.js.

import "./page.js";
import { enter } from "./account.js";
import { changed, look, pause, session } from "./api.js";
import { cancel } from "./cancel.js";
import { check, everySecond, now, sync } from "./clock.js";
import { at, enable, enabled } from "./dom.js";
import { hush, reason, say, wordOf } from "./i18n.js";
import { noted, orderOf, pay, payable, remember, reread, unpaid } from "./order.js";
import { calm, coolDown, freshAfter, jitter, lookAgain } from "./pace.js";
import { begin, fetchPath, finish, isFleeting, unanswered, wish, wished } from "./purchase.js";
import { drawSale, quantity } from "./sale-view.js";
import { newsOf, refusalOf, stateOf } from "./sale-words.js";
import { copies } from "./share.js";
import { watch } from "./stock.js";

const source = at("sale").dataset.source; // the path of the sale, or of the campaign, in the API
let id = at("sale").dataset.id; // of the sale; empty while no sale of a campaign is chosen
const sales = new Map(); // by id, as the server last sent them; one, unless this is the page of a campaign
let sale = null; // the sale with the id; without an id, the campaign as a whole
let streaming = false;
let state = null; // of the sale, by the server's clock
let stage = "choose"; // or "asking", "hold", "stuck", "yours"
let order = null; // the buyer's, in stage "yours"
let told = null; // what the notice says: [word, places], or null
let cool = true;
let reading = null; // a promise while a read of the sale is due
let line = null; // line.js, if the sale has a line or may get one
let campaign = null; // campaign.js, on the page of a campaign

// join lets line.js take part. line.js calls redraw when what it shows has changed.
export function join(module) {
  line = module;
}
export const redraw = draw;

// joinCampaign lets campaign.js take part. campaign.js calls change when the buyer has chosen a sale.
export function joinCampaign(module) {
  campaign = module;
}

// change shows another sale of the campaign, with the buyer's attempt or order if this tab knows one, and returns true. The focus
// stays where it is. While an attempt is on its way, nothing changes, and change returns false.
export function change(to) {
  if (stage === "asking" || stage === "hold") {
    return false;
  }
  id = to;
  [state, stage, order, told] = [null, "choose", null, null];
  if (sales.size > 0) {
    choose();
    draw();
    resume(true);
  }
  return true;
}

function choose() {
  id = sales.has(id) ? id : "";
  sale = id ? sales.get(id) : campaign.whole([...sales.values()]);
}

const starts = () => Date.parse(sale.starts_at);

// turn sets the new state, and a notice about it for a buyer who waits.
function turn(to) {
  const from = state;
  const before = told;
  state = to;
  told = newsOf(from, to, sale);
  if (to === "paused") {
    return;
  }
  if (line?.lined()) {
    told = before?.[0] === "cancelled" ? before : null; // line.js says the rest
  } else if (to === "sold_out" && line) {
    told = ["sold_out_list"];
  } else if (to === "open" && from === "upcoming") {
    if (session() && id) {
      pause(Math.random() * jitter).then(() => fetchPath(id)).catch(() => {}); // the click tries again
    }
  } else if (to === "open" && from === "sold_out") {
    // A buyer who has just cancelled an order keeps the notice of that: the units that are back may be those of that order.
    told = before?.[0] === "cancelled" ? before : told;
    if (document.hidden) {
      document.title = `● ${document.title}`;
    }
  } else if (to === "ended") {
    readSoon(); // the operator may have postponed the end
  }
}

function draw() {
  if (!sale) {
    return;
  }
  if (stateOf(sale) !== state) {
    turn(stateOf(sale));
  }
  drawSale({
    sale, state, stage, order, told, cool,
    instead: line?.form(sale, state) ?? campaign?.form(state),
    most: line?.most() ?? campaign?.most(sale),
    limit: campaign?.limit(sale),
  });
  line?.draw(stage);
  campaign?.draw([...sales.values()], stage === "asking" || stage === "hold");
  if (state === "upcoming" && starts() - now() < coolDown) {
    setTimeout(draw, starts() - now() + 1); // the button is enabled at the start, not at the next full second
  }
}

// move switches to another stage, and moves the focus there unless the focus is to stay.
function move(to, stay = false) {
  const from = stage;
  stage = to;
  draw();
  if (to !== from && to !== "asking" && !stay) {
    at({ choose: "button", hold: "hold-title", stuck: "hold-again", yours: "yours-title" }[to]).focus();
    at("yours").scrollIntoView({ block: "nearest" }); // with the button to pay
  }
}

// buy sends an attempt until there is an answer.
async function buy(attempt) {
  told = null;
  move("asking");
  say(at("hold-title"), "holding");
  say(at("hold-more"), "holding_more");
  const slow = setTimeout(move, calm, "hold");
  try {
    const bought = await finish(attempt, starts(), (word, places) => {
      say(at("hold-title"), word === "offline_wait" ? "offline" : "holding");
      say(at("hold-more"), word, places);
    });
    clearTimeout(slow);
    keep(bought);
  } catch (refusal) {
    clearTimeout(slow);
    refused(attempt, refusal);
  }
  line?.refresh();
}

async function refused(attempt, refusal) {
  if (refusal.code === "unauthenticated") {
    if (await enter("refused_unauthenticated") && unanswered(id)) {
      buy(attempt);
      return;
    }
  } else if (isFleeting(refusal)) {
    say(at("hold-more"), "no_answer");
    move("stuck");
    return;
  } else {
    told = refusalOf(refusal, sale, attempt.quantity);
    if (line && told[0] === "refused_sold_out") {
      told = [sale.campaign_id ? "choose_another" : "sold_out_list"];
    }
  }
  move("choose");
}

// keep shows an order and stores its id, so that a reload shows it again. If the order is rejected, it shows the reason
// instead.
function keep(bought, stay = false) {
  if (bought.status === "rejected") {
    leaveOrder(wordOf({ code: bought.reason }));
    return;
  }
  order = noted(bought);
  remember(id, order.id);
  hush(at("yours-error"));
  move("yours", stay);
}

function leaveOrder(word) {
  order = null;
  remember(id, null);
  told = word ? [word] : null;
  move("choose");
}

// rereadOrder reads the order again. If the buyer has logged out, or in as another user, the order is no longer shown.
async function rereadOrder() {
  if (stage === "yours") {
    const shown = order;
    try {
      const read = await reread(shown);
      if (order === shown) { // else another sale was chosen meanwhile
        keep(read);
      }
    } catch (refusal) {
      if (order === shown && (refusal.status === 401 || refusal.status === 404)) {
        leaveOrder();
      }
    }
  }
}

at("button").addEventListener("click", async () => {
  if (!enabled(at("button"))) {
    return;
  }
  const entering = line?.form(sale, state);
  if (!id && !entering) {
    campaign.ask();
    return;
  }
  cool = false;
  setTimeout(() => {
    cool = true;
    draw();
  }, coolDown);
  draw();
  wish({ id, quantity: quantity(sale) }); // a log-in at the shop's issuer leaves the page
  if (entering) {
    await line.enter(quantity(sale), (...words) => {
      told = words;
      draw();
    }).then(() => { told = null; }, (refusal) => { told = [wordOf(refusal)]; });
    draw();
  } else if (session() || await enter("why_buy")) {
    buy(unanswered(id) ?? begin(id, quantity(sale)));
  }
  wish(null);
});

// goOn does what the buyer asked for before a log-in elsewhere.
function goOn() {
  const asked = wished();
  wish(null);
  if (asked?.id === id && session() && stage === "choose") {
    at("quantity").value = asked.quantity;
    at("button").click();
  }
}

at("hold-again").addEventListener("click", () => {
  const attempt = unanswered(id);
  if (attempt) {
    buy(attempt);
  } else {
    move("choose");
  }
});

// act calls an action on the order. If that fails, it shows the reason beside its button.
async function act(button, what) {
  if (!enabled(button)) {
    return;
  }
  enable(button, false);
  hush(at("yours-error"));
  try {
    await what();
  } catch (refusal) {
    await rereadOrder();
    reason(at("yours-error"), refusal);
  }
  enable(button, true);
}

at("yours-pay").addEventListener("click", () => act(at("yours-pay"), () => pay(order)));
at("yours-cancel").addEventListener("click", () => act(at("yours-cancel"), async () => {
  const shown = order;
  if (await cancel(shown) && order === shown) {
    leaveOrder("cancelled");
  }
}));
at("yours-back").addEventListener("click", () => leaveOrder());
at("early-button").addEventListener("click", () => enter("ready_early"));
at("quantity").addEventListener("change", draw);

// read updates all that an operator may change. It updates the figures only while there is no stream, since a stream has newer
// figures.
async function read() {
  take(await look(source));
}

// readSoon reads the sale, because what the stream does not send may have changed. It first waits until caches ask the server
// again, and a random time, so that pages do not all ask at once.
function readSoon() {
  reading ??= pause(freshAfter + Math.random() * freshAfter)
    .then(read)
    .catch(() => {})
    .finally(() => { reading = null; });
}

function take(said) {
  for (const read of said.sales ?? [said]) {
    const { available, quota, stock, state: last } = streaming ? sales.get(read.id) ?? read : read;
    sales.set(read.id, { ...read, available, quota, stock, state: last });
  }
  campaign?.take(said);
  choose();
  draw();
}

function live(word) {
  const words = { connecting: "connecting", live: "live", broken: "connection_broken" };
  at("line").dataset.line = word;
  say(at("line"), words[word]);
  if (word === "live" && !streaming) {
    readSoon();
  }
  streaming = word === "live";
}

function stocks(list, time) {
  check(Date.parse(time));
  if (!sale) {
    return;
  }
  for (const { id: of, available, quota, stock, state: said, revision } of list) {
    const known = sales.get(of);
    if (said !== known?.state || revision > known.revision || (said === "upcoming" && now() >= starts())) {
      readSoon();
    }
    if (known) {
      Object.assign(known, { available, quota, stock, state: said });
    }
  }
  choose();
  draw();
}

// offerUnpaid shows an order that another tab or line.js has found.
export function offerUnpaid() {
  if (stage === "choose" && orderOf(id)) {
    resume(true);
  }
}

// resume continues where the page was left, or where another tab is: with an attempt that has no answer, or with an order. If the focus is to stay,
// an attempt is sent again only after the buyer's click.
async function resume(stay = false) {
  const of = id;
  const attempt = unanswered(of);
  const orderID = orderOf(of);
  if (attempt && stay) {
    say(at("hold-more"), "no_answer");
    move("stuck", stay);
  } else if (attempt) {
    buy(attempt);
  } else if (orderID && session()) {
    try {
      const read = await reread({ id: orderID });
      if (of === id) { // else another sale was chosen meanwhile
        keep(read, stay);
      }
    } catch (refusal) {
      if (of === id && refusal.status === 404) {
        leaveOrder(); // the order is another user's
      }
    }
  }
}

async function first() {
  for (;;) {
    try {
      return await look(source);
    } catch {
      await pause(lookAgain);
    }
  }
}

async function start() {
  const [said] = await Promise.all([first(), sync()]);
  take(said);
  watch(source, {
    hear: { // each event of the line is followed by one of the stock
      stock: (said) => stocks([{ ...said, id }], said.now),
      stocks: (said) => stocks(said.sales, said.now),
      line: (said) => line?.hear(said),
    },
    line: live,
    patient: () => state === "sold_out" || state === "upcoming",
  });
  everySecond(draw);
  resume().then(goOn);
  setInterval(() => {
    // The stream does not send changes of times, limit and texts, so each page reads the sale about once a minute.
    if (!document.hidden && (!streaming || Math.random() < lookAgain / 60_000)) {
      read().catch(() => {});
    }
    if (order?.status === "pending" && !payable(order)) {
      rereadOrder();
    }
  }, lookAgain);
}

changed.addEventListener("session", () => {
  draw();
  rereadOrder();
});
addEventListener("storage", () => {
  offerUnpaid();
  if (order && payable(order) && !unpaid().some((known) => known.id === order.id)) {
    rereadOrder(); // in another tab it was paid or cancelled
  }
});
addEventListener("pageshow", (event) => {
  if (event.persisted) {
    rereadOrder();
  }
});
document.addEventListener("visibilitychange", () => {
  document.title = document.title.replace("● ", "");
  if (!document.hidden) {
    rereadOrder();
  }
});
copies(at("copy"), at("short"));
start();
