// The element <flash-sale sale="ID">: one sale on a page of the shop, which may have another origin. docs/integrate.md describes
// it to the shop. What it does and says is that of the storefront's pages, by the same modules.

import "./embed-words.js";
import { address, changed, look, pause, session, useToken } from "./api.js";
import { check, everySecond, now, sync } from "./clock.js";
import { enable, enabled, fill, fillBar, show } from "./dom.js";
import { leave } from "./go.js";
import { hush, language, money, number, reason, say, wordOf } from "./i18n.js";
import { noted, orderOf, pay, payable, remember, reread } from "./order.js";
import { calm, coolDown, freshAfter, jitter, lookAgain } from "./pace.js";
import { begin, fetchPath, finish, isFleeting, unanswered, wish, wished } from "./purchase.js";
import { buttonOf, clockOf, isLined, kindOf, leftOf, newsOf, orderWords, payOf, payWithinOf, refusalOf, stateOf } from "./sale-words.js";
import { watch } from "./stock.js";

// A sheet of this kind needs no permission of the shop's Content-Security-Policy.
const style = new CSSStyleSheet();
style.replaceSync(`
:host { display: block; --accent: var(--flash-sale-accent, #0f6b54); --track: var(--flash-sale-track, color-mix(in srgb, currentcolor 16%, transparent)); --radius: var(--flash-sale-radius, .5rem); }
:host([hidden]), [hidden] { display: none !important; }
div { display: grid; gap: var(--flash-sale-gap, .75rem); }
p { margin: 0; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.row { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .25rem 1rem; }
[part=price] strong { font-size: 1.5em; }
[part=left], [part=clock] { font-variant-numeric: tabular-nums; }
[part=bar] { appearance: none; width: 100%; height: .5rem; border: 0; border-radius: 1rem; background: var(--track); overflow: hidden; }
[part=bar]::-webkit-progress-bar { background: var(--track); }
[part=bar]::-webkit-progress-value { background: var(--accent); }
[part=bar]::-moz-progress-bar { background: var(--accent); }
[part=button], select { box-sizing: border-box; min-height: 2.75rem; padding: .625rem 1rem; border: 1px solid; border-radius: var(--radius); font: inherit; }
[part=button] { width: 100%; border-color: transparent; background: var(--accent); color: var(--flash-sale-on-accent, #fff); font-weight: 600; text-align: center; text-decoration: none; cursor: pointer; }
[part=button][aria-disabled=true] { background: var(--track); color: inherit; cursor: default; }
select { background: transparent; color: inherit; }
option { background: canvas; color: canvastext; }
[part=choice] { display: flex; align-items: center; justify-content: space-between; gap: 1rem; }
[part=notice], [part=panel] { padding: .75rem 1rem; border: 1px solid var(--track); border-radius: var(--radius); }
[part=panel-title] { font-size: 1.125em; font-weight: 600; }
[part=link] { min-height: 1.5rem; padding: .25rem 0; border: 0; background: none; color: inherit; font: inherit; text-decoration: underline; cursor: pointer; }
:focus-visible { outline: 3px solid; outline-offset: 2px; }
`);

// make makes an element of the shadow tree.
function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  const { part, role, ...rest } = properties;
  for (const [name, value] of Object.entries({ part, role })) {
    if (value) {
      element.setAttribute(name, value);
    }
  }
  Object.assign(element, rest);
  element.append(...children);
  return element;
}

// write shows words in an element, or nothing if there are none.
function write(element, words) {
  show(element, words);
  if (words) {
    say(element, ...words);
  }
}

let synced = null; // a promise of the server's time

class FlashSale extends HTMLElement {
  static observedAttributes = ["sale", "token"];

  static #connected = new Set();

  static {
    everySecond(() => FlashSale.#connected.forEach((element) => element.#draw()));
  }

  #over = null; // aborts when the element is removed, or shows another sale
  #sale = null; // as the server last sent it
  #state = null; // of the sale, by the server's clock
  #stage = "choose"; // or "asking", "hold", "stuck", "yours"
  #order = null; // the buyer's, in stage "yours"
  #told = null; // what the notice says: [word, places], or null
  #hold = [["holding"], ["holding_more"]]; // what the panel says while there is no answer
  #line = "connecting"; // the event stream: "connecting", "live" or "broken"
  #cool = true;
  #reading = null; // a promise while a read of the sale is due
  #parts = {};

  constructor() {
    super();
    const p = this.#parts;
    const part = (name, tag, properties, ...children) => {
      p[name] = make(tag, properties, ...children);
      return p[name];
    };
    const link = (name) => part(name, "a", { part: "link", target: "_top", href: address("/orders") });
    const button = (name, kind = "button") => part(name, "button", { part: kind, type: "button" });
    this.attachShadow({ mode: "open" }).append(part("root", "div", { part: "sale", role: "group" },
      part("fallback", "slot", {}),
      part("offer", "div", {},
        make("p", { className: "row" }, part("state", "span", { part: "state" }), part("live", "span", { part: "live" })),
        make("p", { part: "price" }, part("price", "strong", {}), " ", part("instead", "span", { className: "unseen" }), " ", part("before", "s", {})),
        part("left", "p", { part: "left", id: "left" }),
        part("bar", "progress", { part: "bar" }),
        part("clock", "p", { part: "clock", role: "timer" }),
        part("form", "div", {},
          part("choice", "label", { part: "choice" }, part("many", "span", {}), part("quantity", "select", { part: "quantity" })),
          button("button"),
          part("enter", "a", { part: "button", target: "_top" }),
          make("p", { part: "terms" }, part("limit", "span", {}), " · ", part("within", "span", {})),
        ),
      ),
      make("div", { role: "status" }, part("notice", "p", { part: "notice" })),
      part("panel", "div", { part: "panel" },
        part("title", "p", { part: "panel-title", tabIndex: -1 }),
        part("more", "p", {}),
        part("sum", "p", { className: "row" }, part("units", "span", {}), part("amount", "strong", {})),
        part("error", "p", { role: "alert" }),
        button("again"),
        button("pay"),
        part("links", "p", { className: "row" }, link("orders"), button("back", "link")),
      ),
    ));
    this.shadowRoot.adoptedStyleSheets = [style];
    p.bar.setAttribute("aria-labelledby", "left");
    p.button.addEventListener("click", () => this.#click());
    p.quantity.addEventListener("change", () => this.#draw());
    p.again.addEventListener("click", () => {
      const attempt = unanswered(this.#sale.id);
      if (attempt) {
        this.#buy(attempt);
      } else {
        this.#move("choose");
      }
    });
    p.pay.addEventListener("click", () => this.#pay());
    p.back.addEventListener("click", () => this.#leaveOrder());
  }

  get sale() {
    return this.getAttribute("sale") ?? "";
  }

  set sale(id) {
    this.setAttribute("sale", id);
  }

  // token is the access token of the buyer who is logged in at the shop, for all elements of the page. Nothing reads it back.
  set token(token) {
    useToken(token);
  }

  connectedCallback() {
    for (const name of FlashSale.observedAttributes) { // properties that the page has set before this module ran
      if (Object.hasOwn(this, name)) {
        const value = this[name];
        delete this[name];
        this[name] = value;
      }
    }
    this.#start();
  }

  disconnectedCallback() {
    FlashSale.#connected.delete(this);
    this.#over.abort();
    this.#over = null;
  }

  attributeChangedCallback(name, before, value) {
    if (name === "token") {
      useToken(value);
    } else if (this.#over && value !== before) {
      this.#start();
    }
  }

  // start shows the sale anew, and goes on with what the buyer has begun: with an attempt that has no answer, or with an order.
  async #start() {
    this.#over?.abort();
    const over = new AbortController();
    const { signal } = over;
    this.#over = over;
    [this.#sale, this.#state, this.#order, this.#told] = [null, null, null, null];
    [this.#line, this.#stage, this.#cool] = ["connecting", "choose", true];
    this.removeAttribute("state");
    FlashSale.#connected.add(this);
    this.#draw();
    synced ??= sync();
    const [said] = await Promise.all([this.#first(signal), synced]);
    if (signal.aborted || !said) {
      return;
    }
    this.#sale = said;
    this.#told = null;
    this.#draw();
    watch(`/sales/${said.id}`, {
      hear: { stock: (figures) => this.#hear(figures) },
      line: (word) => this.#live(word),
      patient: () => this.#state === "sold_out" || this.#state === "upcoming",
      signal,
    });
    const timer = setInterval(() => this.#look(), lookAgain);
    signal.addEventListener("abort", () => clearInterval(timer));
    const again = () => this.#reread();
    document.addEventListener("visibilitychange", () => document.hidden || again(), { signal });
    addEventListener("pageshow", (event) => event.persisted && again(), { signal });
    changed.addEventListener("session", () => {
      this.#draw();
      again();
      this.#goOn();
    }, { signal });
    // An order may have been made in another tab, or by another element of the page.
    addEventListener("storage", () => this.#resume(), { signal });
    changed.addEventListener("order", ({ detail: of }) => of === said.id && this.#resume(), { signal });
    this.#goOn();
  }

  // first returns the sale, or null if there is none.
  async #first(signal) {
    while (this.sale && !signal.aborted) {
      try {
        return await look(`/sales/${encodeURIComponent(this.sale)}`);
      } catch (refusal) {
        if (signal.aborted) {
          return null;
        }
        this.#told = [refusal.status === 404 ? "refused_not_found" : "connection_broken"];
        this.#draw();
        if (refusal.status === 404) {
          this.setAttribute("state", "unknown");
          return null;
        }
        await pause(lookAgain);
      }
    }
    return null;
  }

  #live(word) {
    if (word === "live" && this.#line !== "live") {
      this.#readSoon(); // what the stream does not send may have changed
    }
    this.#line = word;
    this.#draw();
  }

  #hear({ available, quota, stock, state, revision, now: time }) {
    check(Date.parse(time));
    if (state !== this.#sale.state || revision > this.#sale.revision || (state === "upcoming" && now() >= Date.parse(this.#sale.starts_at))) {
      this.#readSoon();
    }
    Object.assign(this.#sale, { available, quota, stock, state });
    this.#draw();
  }

  // look reads the sale while there is no stream, and about once a minute in any case: the stream does not send everything.
  #look() {
    if (!document.hidden && (this.#line !== "live" || Math.random() < lookAgain / 60_000)) {
      this.#read().catch(() => {});
    }
    if (this.#order?.status === "pending" && !payable(this.#order)) {
      this.#reread();
    }
  }

  async #read() {
    const { signal } = this.#over;
    const said = await look(`/sales/${this.#sale.id}`);
    if (!signal.aborted) {
      const { available, quota, stock, state } = this.#line === "live" ? this.#sale : said; // the stream has newer figures
      this.#sale = { ...said, available, quota, stock, state };
      this.#draw();
    }
  }

  // readSoon reads the sale when caches ask the server again, and after a random time, so that pages do not all ask at once.
  #readSoon() {
    this.#reading ??= pause(freshAfter * (1 + Math.random()))
      .then(() => this.#over && this.#sale && this.#read())
      .catch(() => {})
      .finally(() => { this.#reading = null; });
  }

  #turn(to) {
    this.#told = newsOf(this.#state, to, this.#sale);
    if (to === "open" && this.#state === "upcoming" && session()) {
      const { id } = this.#sale;
      pause(Math.random() * jitter).then(() => fetchPath(id)).catch(() => {}); // the click tries again
    } else if (to === "ended") {
      this.#readSoon(); // the operator may have postponed the end
    }
    this.#state = to;
    this.setAttribute("state", to);
  }

  #quantity() {
    return this.#sale.limit_per_user > 1 ? Number(this.#parts.quantity.value) : 1;
  }

  #click() {
    if (!enabled(this.#parts.button)) {
      return;
    }
    this.#cool = false;
    setTimeout(() => {
      this.#cool = true;
      this.#draw();
    }, coolDown);
    this.#draw();
    if (session()) {
      this.#buy(unanswered(this.#sale.id) ?? begin(this.#sale.id, this.#quantity()));
    } else {
      this.#logIn();
    }
  }

  // logIn asks the shop to log the buyer in. If the shop has no listener that prevents it, the engine's page of the sale is opened.
  #logIn() {
    wish({ id: this.#sale.id, quantity: this.#quantity() });
    if (this.#dispatch("flash-sale-login") && !session()) {
      wish(null);
      leave(this.#page());
    }
  }

  #dispatch(name, detail) {
    return this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true, cancelable: name === "flash-sale-login" }));
  }

  #page() {
    return address(`/sales/${this.#sale.id}`);
  }

  // goOn resumes, and then does what the buyer asked for before a log-in.
  async #goOn() {
    const { signal } = this.#over;
    await this.#resume();
    const asked = wished();
    if (!signal.aborted && session() && asked?.id === this.#sale.id) {
      wish(null);
      if (this.#stage === "choose") {
        this.#parts.quantity.value = asked.quantity;
        this.#cool = true;
        this.#draw();
        this.#click();
      }
    }
  }

  async #resume() {
    const { signal } = this.#over;
    const { id } = this.#sale;
    const [attempt, orderID] = [unanswered(id), orderOf(id)];
    if (this.#stage !== "choose" || !session()) {
      return;
    }
    if (attempt) {
      this.#buy(attempt);
    } else if (orderID) {
      try {
        const order = await reread({ id: orderID });
        if (!signal.aborted && this.#stage === "choose") {
          this.#keep(order);
        }
      } catch (refusal) {
        if (refusal.status === 404) {
          remember(id, null); // the order is another user's
        }
      }
    }
  }

  // buy sends an attempt until there is an answer. If the element is removed meanwhile, the answer is stored for its return.
  async #buy(attempt) {
    const { signal } = this.#over;
    this.#told = null;
    this.#hold = [["holding"], ["holding_more"]];
    this.#move("asking");
    const slow = setTimeout(() => signal.aborted || this.#move("hold"), calm);
    try {
      const order = await finish(attempt, Date.parse(this.#sale.starts_at), (word, places) => {
        this.#hold = [[word === "offline_wait" ? "offline" : "holding"], [word, places]];
        this.#draw();
      });
      remember(attempt.saleID, order.id);
      if (!signal.aborted) {
        this.#keep(order);
      }
    } catch (refusal) {
      if (!signal.aborted) {
        this.#refused(attempt, refusal);
      }
    } finally {
      clearTimeout(slow);
    }
  }

  #refused(attempt, refusal) {
    if (isFleeting(refusal)) {
      this.#hold = [["holding"], ["no_answer"]];
      this.#move("stuck");
      return;
    }
    this.#told = refusalOf(refusal, this.#sale, attempt.quantity);
    if (this.#sale.waiting_list && this.#told[0] === "refused_sold_out") {
      this.#told = ["sold_out_list"];
    }
    this.#move("choose");
    if (refusal.code === "unauthenticated") {
      this.#dispatch("flash-sale-login"); // with another token of this buyer, the attempt goes on
    }
  }

  #keep(order) {
    if (order.status === "rejected") {
      this.#leaveOrder([wordOf({ code: order.reason })]);
      return;
    }
    const before = this.#order;
    this.#order = noted(order);
    remember(this.#sale.id, order.id);
    hush(this.#parts.error);
    this.#move("yours");
    if (order.id !== before?.id || order.status !== before.status) {
      this.#dispatch("flash-sale-order", order);
      changed.dispatchEvent(new CustomEvent("order", { detail: this.#sale.id }));
    }
  }

  #leaveOrder(told = null) {
    this.#order = null;
    remember(this.#sale.id, null);
    this.#told = told;
    this.#move("choose");
  }

  // reread reads the order again. If the buyer has logged out, or in as another user, the order is no longer shown.
  async #reread() {
    const { signal } = this.#over;
    const shown = this.#order;
    try {
      const order = shown && await reread(shown);
      if (order && !signal.aborted && this.#order === shown) {
        this.#keep(order);
      }
    } catch (refusal) {
      if (!signal.aborted && this.#order === shown && [401, 404].includes(refusal.status)) {
        this.#leaveOrder();
      }
    }
  }

  async #pay() {
    const { pay: button, error } = this.#parts;
    if (!enabled(button)) {
      return;
    }
    enable(button, false);
    hush(error);
    try {
      await pay(this.#order);
    } catch (refusal) {
      await this.#reread();
      reason(error, refusal);
    }
    enable(button, true);
  }

  // move switches to another stage. If the focus was in this element, it moves there too.
  #move(to) {
    const from = this.#stage;
    const inside = this.shadowRoot.activeElement;
    this.#stage = to;
    this.#draw();
    if (inside && to !== from && to !== "asking") {
      const { title, button, enter } = this.#parts;
      (to !== "choose" ? title : enter.hidden ? button : enter).focus();
    }
  }

  #draw() {
    const [p, sale] = [this.#parts, this.#sale];
    p.root.lang = language();
    show(p.fallback, !sale);
    show(p.offer, sale);
    if (sale) {
      this.#drawSale(p, sale);
    }
    this.#drawPanel(p, sale);
    write(p.notice, this.#told);
  }

  #drawSale(p, sale) {
    if (stateOf(sale) !== this.#state) {
      this.#turn(stateOf(sale));
    }
    const state = this.#state;
    const until = Date.parse(sale.starts_at) - now();
    if (state === "upcoming" && until < coolDown) {
      const { signal } = this.#over;
      setTimeout(() => signal.aborted || this.#draw(), until + 1); // the button is enabled at the start, not at the next full second
    }
    p.root.setAttribute("aria-label", [sale.title, sale.variant].filter(Boolean).join(", "));
    say(p.state, `state_${state}`);
    say(p.live, { connecting: "connecting", live: "live", broken: "connection_broken" }[this.#line]);
    p.price.textContent = money(sale.price_cents, sale.currency);
    p.before.textContent = money(sale.original_price_cents, sale.currency);
    const reduced = sale.original_price_cents > sale.price_cents;
    show(p.before, reduced);
    write(p.instead, reduced && ["instead_of"]);
    write(p.left, leftOf(sale));
    fillBar(p.bar, sale);
    write(p.clock, clockOf(sale, state));
    const lined = isLined(sale, state) && state !== "ended";
    show(p.form, this.#stage === "choose" || this.#stage === "asking");
    show(p.choice, sale.limit_per_user > 1 && !lined);
    say(p.many, "quantity");
    fill(p.quantity, sale.limit_per_user);
    show(p.button, !lined);
    enable(p.button, state === "open" && this.#cool && this.#stage === "choose");
    p.button.setAttribute("aria-busy", String(this.#stage === "asking"));
    say(p.button, ...buttonOf(sale, state, this.#quantity()));
    write(p.enter, lined && [`enter_${kindOf(sale)}`]);
    p.enter.href = this.#page();
    say(p.limit, "limit", { n: number(sale.limit_per_user) });
    say(p.within, ...payWithinOf(sale));
  }

  #drawPanel(p, sale) {
    const [stage, order] = [this.#stage, this.#order];
    const yours = stage === "yours";
    show(p.panel, yours || stage === "hold" || stage === "stuck");
    write(p.again, stage === "stuck" && ["ask_again"]);
    show(p.sum, yours);
    show(p.links, yours);
    show(p.pay, yours && payable(order));
    if (!yours) {
      say(p.title, ...this.#hold[0]);
      say(p.more, ...this.#hold[1]);
      return;
    }
    const { status, title, more, units, amount } = orderWords(order, sale);
    say(p.title, ...title);
    say(p.more, ...more);
    say(p.units, ...units);
    p.amount.textContent = amount;
    say(p.pay, ...payOf(order));
    say(p.orders, "see_orders");
    say(p.back, status === "pending" ? "buy_more" : "back_to_sale");
    show(p.back, !payable(order) || sale.limit_per_user > order.quantity);
  }
}

if (!customElements.get("flash-sale")) { // a page may load two versions
  customElements.define("flash-sale", FlashSale);
}
