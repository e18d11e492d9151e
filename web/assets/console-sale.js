// The console's page of one sale: its live figures, and the actions of an operator.

import { call } from "./api.js";
import { now } from "./clock.js";
import { confirm } from "./confirm.js";
import { older, stateOf } from "./desk.js";
import { at, show } from "./dom.js";
import { Mistake, copyOf, local, moment, whole, zone } from "./fields.js";
import { draw as drawFigures } from "./figures.js";
import { visit } from "./go.js";
import { dateTime, money, number, say } from "./i18n.js";
import { drafted, open } from "./sale-form.js";
import { done as tellDone, facts, focusAction, head, id, offer, run, withStock } from "./subject.js";

// mostUnits is the largest quota.
const mostUnits = 100_000_000;

// The engine's bounds for an operator's changes of a line.
const longestExtension = 24 * 3600;
const mostUsers = 1000;
const longestReason = 200;

let sale = null;
let inLine = null; // the last figures of the sale's line, if it has one

function take(said) {
  if (older(said, sale)) {
    return;
  }
  sale = withStock(said, sale);
  head(sale, `/${sale.campaign_id === id ? "campaigns" : "sales"}/${id}`); // the line of a campaign is on the campaign's page
  show(at("campaign-link"), sale.campaign_id);
  at("campaign-link").href = `/console/campaigns/${sale.campaign_id}`;
  draw();
}

// draw shows the sale without its live figures, and the actions that are possible.
function draw() {
  const state = stateOf(sale);
  facts(sale, state, [sale]);
  at("price").textContent = money(sale.price_cents, sale.currency);
  say(at("limit"), "limit", { n: number(sale.limit_per_user) });
  const over = state === "ended";
  const ofAll = sale.campaign_id === sale.id; // the line of a campaign, which is paused and closed with its sales
  show(at("owner"), !ofAll); // it sells nothing itself
  offer({
    pause: !over && !ofAll && sale.status === "live", // a rehearsal can't be paused
    resume: !over && !ofAll && sale.status === "paused",
    add: !over && !ofAll,
    duplicate: !sale.campaign_id,
    extend: !sale.campaign_id && (!over || now() >= Date.parse(sale.ends_at)), // not if an operator has closed the sale
    close: !over && (!sale.campaign_id || sale.mode === "rush"), // whoever is called may choose any sale of the campaign
    lengthen: inLine?.called > 0,
    void: inLine?.phase === "entering",
  });
}

// done shows the changed sale and a notice.
function done(name, made) {
  if (made) {
    take(made);
    tellDone(name);
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

at("duplicate").addEventListener("click", duplicate);

function duplicate() {
  open(null, (made) => visit(`/console/sales/${made.id}`), copyOf(sale));
}

function hear(figures) {
  if (older(figures, sale)) {
    return;
  }
  inLine = figures.line ?? null;
  const { state, status, revision, quota, available, held, paid } = figures;
  Object.assign(sale, { state, status, revision, quota, available, held, paid });
  draw();
  drawFigures([figures]);
}

const fresh = run(`/admin/sales/${id}`, {
  take,
  hear,
  draw,
  opened() {
    if (drafted(sale) && at("form").hidden) {
      edit();
    } else if (drafted(null, sale) && at("form").hidden) {
      duplicate();
    }
  },
});
