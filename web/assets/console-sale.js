// The console's page of one sale: its live figures, and the actions of an operator.

import { call, pause } from "./api.js";
import { everySecond, now, sync } from "./clock.js";
import { confirm } from "./confirm.js";
import { refresh as refreshLog, start as startLog } from "./console-log.js";
import { refresh as refreshOrders, start as startOrders } from "./console-orders.js";
import { attend, older, repeat, sayWindow, stateOf } from "./desk.js";
import { at, show } from "./dom.js";
import { follow } from "./feed.js";
import { Mistake, local, moment, whole, zone } from "./fields.js";
import { draw as drawFigures, forget } from "./figures.js";
import { drafted, open } from "./sale-form.js";
import { dateTime, money, number, reason, say } from "./i18n.js";
import { copies } from "./share.js";

// period is how often the sale, its orders and its log are read again, in milliseconds: the stream does not send all
// that other operators change.
const period = 5000;

// late is the age of the last figures, in milliseconds, after which they do not count as live. They come once a second.
const late = 5000;

// impliedBy gives the status that a state implies. It is used until the stream sends the status, which is not in the
// public data of a sale.
const impliedBy = { open: "live", sold_out: "live", paused: "paused" };

// mostUnits is the largest quota.
const mostUnits = 100_000_000;

// The engine's bounds for an operator's changes of a line.
const longestExtension = 24 * 3600;
const mostUsers = 1000;
const longestReason = 200;

const id = location.pathname.split("/").at(-1);
let sale = null;
let heard = null; // the time of the last figures, by the server's clock
let inLine = null; // the last figures of the sale's line, if it has one
let arrived = Infinity; // when the last figures came, by performance.now()

function take(said) {
  if (older(said, sale)) {
    return;
  }
  sale = { status: sale?.status ?? impliedBy[said.state], ...said };
  document.title = `${sale.title} · Flashsale`;
  at("title-shown").textContent = sale.title;
  at("shop-link").href = `/${sale.campaign_id === id ? "campaigns" : "sales"}/${id}`; // the line of a campaign is on the campaign's page
  show(at("campaign-link"), sale.campaign_id);
  at("campaign-link").href = `/console/campaigns/${sale.campaign_id}`;
  at("short").href = at("short").textContent = sale.short_url;
  const code = `${new URL(sale.short_url).pathname}/qr.svg`; // a path on this server, whatever the public URL is
  if (at("qr").getAttribute("src") !== code) {
    at("qr").src = at("qr-download").href = code;
    at("qr-download").download = `sale-${id}.svg`;
  }
  draw();
}

// draw shows the sale without its figures, and the actions that are possible.
function draw() {
  if (!sale) {
    return;
  }
  if (performance.now() - arrived > late && at("line").dataset.line === "live") {
    line("broken");
  }
  const state = stateOf(sale);
  at("state").dataset.state = state;
  say(at("state"), `state_${state}`);
  show(at("state"), true);
  sayWindow(at("window"), sale);
  at("price").textContent = money(sale.price_cents, sale.currency);
  say(at("limit"), "limit", { n: number(sale.limit_per_user) });
  const over = state === "ended";
  const ofAll = sale.campaign_id === sale.id; // the line of a campaign, which is paused and closed with its sales
  const focused = document.activeElement;
  show(at("pause"), !over && !ofAll && sale.status === "live"); // a rehearsal can't be paused
  show(at("resume"), !over && !ofAll && sale.status === "paused");
  show(at("add"), !over && !ofAll);
  show(at("extend"), !sale.campaign_id && (!over || now() >= Date.parse(sale.ends_at))); // not if an operator has closed the sale
  show(at("close"), !over && (!sale.campaign_id || sale.mode === "rush")); // whoever is called may choose any sale of the campaign
  show(at("lengthen"), inLine?.called > 0);
  show(at("void"), inLine?.phase === "entering");
  if (at("actions").contains(focused) && focused.hidden) {
    focusAction();
  }
}

// focusAction moves the focus to an action when the button that had it is gone.
function focusAction() {
  at("actions").querySelector("button:not([hidden])").focus();
}

// done shows the changed sale and a notice.
function done(name, made) {
  if (made) {
    take(made);
    say(at("notice"), `done_${name}`);
    show(at("notice"), true);
    refreshLog();
  }
  if (at(name).hidden) {
    focusAction();
  }
}

const change = async (body) => (await call("PATCH", `/admin/sales/${id}`, { body })).data;

for (const [name, grave] of [["pause", false], ["resume", false], ["close", true]]) {
  at(name).addEventListener("click", async () => done(name, await confirm(name, {
    places: { left: number(sale.available) }, grave, work: async () => (await call("POST", `/admin/sales/${id}/${name}`)).data,
  })));
}

at("add").addEventListener("click", async () => done("add", await confirm("add", {
  field: {
    type: "text",
    mode: "numeric",
    value: "",
    read: (typed) => whole(typed, 1, mostUnits - sale.quota),
    hint: (typed) => {
      const more = Number.parseInt(typed.replace(/[\s,]/g, ""), 10);
      return more > 0 ? ["ask_add_hint", { quota: number(sale.quota), sum: number(sale.quota + more) }] : ["ask_add_empty", { quota: number(sale.quota) }];
    },
  },
  work: (units) => change({ add_quota: units, if_quota: sale.quota }), // a browser may repeat the request; if_quota then has it refused
})));

at("extend").addEventListener("click", async () => done("extend", await confirm("extend", {
  places: { time: () => dateTime(Date.parse(sale.ends_at)) },
  field: {
    type: "datetime-local",
    value: local(sale.ends_at),
    read: (typed) => {
      const ends = moment(typed);
      if (Date.parse(ends) <= Date.parse(sale.starts_at)) {
        throw new Mistake("wrong_order");
      }
      return ends;
    },
    hint: () => ["zone", zone(Date.parse(sale.ends_at))],
  },
  work: (ends) => change({ ends_at: ends }),
})));

at("lengthen").addEventListener("click", async () => done("lengthen", await confirm("lengthen", {
  field: { type: "text", mode: "numeric", value: "60", read: (typed) => whole(typed, 1, longestExtension) },
  work: (seconds) => ask("extend", { seconds }),
})));

at("void").addEventListener("click", async () => done("void", await confirm("void", {
  field: { type: "text", value: "", reasoned: true, read: rule },
  grave: true,
  work: (body) => ask("void", body),
})));

// ask sends a change of the line and returns the sale.
async function ask(what, body) {
  await call("POST", `/admin/sales/${id}/line/${what}`, { body });
  return fresh();
}

// rule reads which entries are to be removed: two numbers with a dash between them, or ids of users with commas or spaces.
function rule(typed, reason) {
  const why = reason.trim();
  const [, from, to] = typed.match(/^\s*(\d{1,12})\s*[-–]\s*(\d{1,12})\s*$/) ?? [];
  const users = typed.split(/[\s,，]+/).filter(Boolean);
  if (from === undefined ? users.length < 1 || users.length > mostUsers : Number(from) > Number(to)) {
    throw new Mistake("wrong_rule");
  }
  if (why.length < 1 || why.length > longestReason) {
    throw new Mistake("wrong_reason");
  }
  return from === undefined ? { users, reason: why } : { from: Number(from), to: Number(to), reason: why };
}

at("edit").addEventListener("click", edit);

function edit() {
  open(sale, (made) => done("edit", made));
}

function line(word) {
  at("line").dataset.line = word;
  at("figures").classList.toggle("stale", word === "broken");
  show(at("line"), true);
  if (word === "live") {
    say(at("line"), "live");
    return;
  }
  if (heard && word === "broken") {
    say(at("line"), "not_live", { time: () => dateTime(heard, "medium") });
  } else {
    say(at("line"), word === "broken" ? "connection_broken" : "connecting");
  }
  forget();
}

function hear(event, figures) {
  if (event === "figures") {
    heard = Date.parse(figures.now);
    arrived = performance.now();
    if (at("line").dataset.line !== "live") {
      line("live");
    }
    if (older(figures, sale)) {
      return;
    }
    inLine = figures.line ?? null;
    const { state, status, revision, quota, available } = figures;
    Object.assign(sale, { state, status, revision, quota, available });
    draw();
    drawFigures(figures);
  }
}

// fresh reads the sale without caches, which may have it as it was before a change on this page.
const fresh = async () => (await call("GET", `/sales/${id}`, { headers: { "Cache-Control": "no-cache" } })).data;

async function refresh() {
  try {
    take(await fresh());
  } catch {
    // line() has shown whether there is a connection
  }
  await Promise.all([refreshOrders(), refreshLog()]);
}

async function first(signal) {
  while (!sale && !signal.aborted) {
    try {
      take(await fresh());
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
  if (!sale || signal.aborted) {
    return;
  }
  startOrders(id, refreshLog);
  startLog(`/admin/sales/${id}/operations`);
  repeat(signal, period, refresh);
  follow(`/admin/sales/${id}/live`, { signal, hear, line }).catch((refusal) => {
    line("broken");
    reason(at("line"), refusal);
  });
  if (drafted(sale) && at("form").hidden) {
    edit();
  }
});
copies(at("copy"), at("short"));
sync().then(() => everySecond(draw));
