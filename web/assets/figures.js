// The live figures of a sale, or of the sales of a campaign: tiles, charts and tables.

import { chart } from "./chart.js";
import { now as time } from "./clock.js";
import { coded, element, milliseconds, put, row } from "./desk.js";
import { at, show } from "./dom.js";
import { dateTime, duration, money, number, say } from "./i18n.js";
import { drawInstances } from "./instances.js";

// The statuses of the orders and refusals in the database. All of them are always listed, so that nothing moves.
const states = ["pending", "paid", "cancelled", "expired", "refunded", "rejected"];

// old is the age of the orders' sums, in milliseconds, from which on the age is shown. The sums are read less often
// than the other figures.
const old = 5000;

const stock = chart(at("stock-chart"), ["available", "held", "paid"]);
const rates = chart(at("rate-chart"), ["series_accepted", "series_sold_out", "series_others"]);
let last = null; // the previous figures

// forget makes the next figures count as the first, and makes a gap in the charts: nothing is known of the time for
// which the stream has paused.
export function forget() {
  if (last) {
    const gap = Date.parse(last.now) / 1000 + 0.001;
    stock.add(gap, [null, null, null]);
    rates.add(gap, [null, null, null]);
  }
  last = null;
}

// begin draws what the engine has stored since the start, as points of the charts, before the live figures.
export function begin({ stockPoints, ratePoints }) {
  stock.fill(stockPoints);
  rates.fill(ratePoints);
}

// draw shows the figures of a sale, or of the sales of a campaign.
export function draw(list) {
  const now = sumOf(list);
  const { perSecond, verdicts } = compare(now, last);
  last = now;
  drawEngine(now, perSecond, verdicts);
  drawLine(now.line);
  drawCharts(now, verdicts);
  put(at("verdicts"), Object.entries(now.purchases).sort((a, b) => b[1] - a[1]).map(([verdict, count]) => row(
    [coded("verdict", verdict), rate(verdicts?.[verdict] ?? null), number(count)], [1, 2])), "none_yet");
  const { orders, units } = now.books_at ? now : { orders: {}, units: {} };
  put(at("books"), states.map((state) => row(
    [coded("status", state), number(orders[state] ?? 0), number(units[state] ?? 0)], [1, 2])), "none_yet");
  put(at("stages"), Object.entries(now.stages).sort().map(([name, { count, p50_ms: p50, p99_ms: p99 }]) => row(
    [element("span", "id", name), number(count), count ? milliseconds(p50) : "–", count ? milliseconds(p99) : "–"], [1, 2, 3])), "none_yet");
  drawAge(now);
  drawInstances(now.instances);
}

// sumOf returns the figures of several sales as those of one sale. Stages are of the instances, not of a sale, and the sales of a
// campaign have the same line.
function sumOf(list) {
  const [first] = list;
  if (list.length === 1) {
    return first;
  }
  const sum = (pick) => list.reduce((n, figures) => n + pick(figures), 0);
  const every = (pick) => list.every(pick);
  const oldest = (name) => (every((figures) => figures[name]) ? list.map((figures) => figures[name]).sort()[0] : null);
  const sums = (name) => {
    const all = {};
    for (const [key, n] of list.flatMap((figures) => Object.entries(figures[name] ?? {}))) {
      all[key] = (all[key] ?? 0) + n;
    }
    return all;
  };
  const units = (names) => Object.fromEntries(names.map((name) => [name, sum((figures) => figures[name])]));
  const reserved = sum(({ line }) => line?.reserved ?? 0);
  return {
    ...first,
    ...units(["quota", "available", "held", "paid", "requests", "drift"]),
    now: list.map(({ now }) => now).sort().at(-1),
    state: every(({ state }) => state === "ended") ? "ended" : "open",
    line: first.line && { ...first.line, reserved: Math.max(0, reserved - first.line.called) }, // whoever is called chooses a sale later
    purchases: sums("purchases"),
    orders: sums("orders"),
    units: sums("units"),
    books_at: oldest("books_at"),
    drift_at: oldest("drift_at"),
    ok: every(({ ok }) => ok),
    database: { reachable: every(({ database }) => database.reachable) },
    gate: {
      reachable: every(({ gate }) => gate.reachable),
      open: every(({ gate }) => gate.open),
      epoch: Math.max(...list.map(({ gate }) => gate.epoch)),
      left: sum(({ gate }) => gate.left),
      inflight: sum(({ gate }) => gate.inflight),
      stream: sum(({ gate }) => gate.stream),
    },
    instances: first.instances.map((instance) => ({
      ...instance, requests: sum(({ instances }) => instances.find((other) => other.id === instance.id)?.requests ?? 0),
    })),
  };
}

// compare returns the requests per second since the previous figures: in all, and by verdict. Both are null for the first
// figures, and if the sum has fallen: then an instance has stopped or restarted, and its counts are gone.
function compare(now, before) {
  const seconds = before ? (Date.parse(now.now) - Date.parse(before.now)) / 1000 : 0;
  if (seconds <= 0 || now.requests < before.requests) {
    return { perSecond: null, verdicts: null };
  }
  const verdicts = Object.entries(now.purchases).map(([verdict, count]) => [verdict, Math.max(0, count - (before.purchases[verdict] ?? 0)) / seconds]);
  return { perSecond: (now.requests - before.requests) / seconds, verdicts: Object.fromEntries(verdicts) };
}

// drawOwner shows what was sold of a sale, or of the sales of a campaign, and how much time is left.
export function drawOwner({ starts_at: starts, ends_at: ends }, state, sales) {
  const sum = (pick) => sales.reduce((n, sale) => n + pick(sale), 0);
  const units = (name) => sum((sale) => sale[name]);
  const revenue = (name) => money(sum((sale) => sale[name] * sale.price_cents), sales[0].currency);
  const [quota, held, paid] = [units("quota"), units("held"), units("paid")];
  const share = (n) => ({ n: quota ? Math.round((100 * n) / quota) : 0 });
  tile("sold", number(held + paid), "note_quota", { n: number(quota) });
  tile("paid", number(paid), "note_share", share(paid));
  tile("revenue", revenue("paid"), "note_unpaid", { amount: revenue("held") });
  tile("available", number(units("available")), "note_quota", { n: number(quota) });
  tile("held", number(held), "note_share", share(held));
  if (state === "ended") {
    tile("time", "–", "note_over");
  } else if (state === "upcoming") {
    tile("time", duration(Date.parse(starts) - time()), "note_until_start");
  } else {
    tile("time", duration(Date.parse(ends) - time()), "note_until_end");
  }
}

function drawEngine(now, perSecond, verdicts) {
  tile("requests", rate(perSecond), "note_in_all", { n: number(now.requests) });
  tile("admitted", rate(verdicts && (verdicts.accepted ?? 0)), "note_in_all", { n: number(now.purchases.accepted ?? 0) });
  const { reachable, open, epoch, left, inflight, stream } = now.gate;
  tile("queue", reachable ? number(stream) : "–", "note_inflight", { n: reachable ? number(inflight) : "–" });
  tile("gate", null, now.line ? "note_no_gate" : "note_gate", { epoch: number(epoch), left: reachable ? number(left) : "–" });
  tile("drift", now.drift_at ? number(now.drift) : "–", now.books_at ? (now.ok ? "note_ok" : "note_not_ok") : "note_not_read");
  say(at("tile-gate").querySelector(".value"), gateWord(now));
  at("tile-gate").dataset.tone = reachable && (open || now.line || now.state === "ended") ? "good" : "warn";
  at("tile-drift").dataset.tone = now.books_at && !now.ok ? "bad" : now.drift === 0 ? "good" : "warn";
  show(at("database-away"), !now.database.reachable);
  show(at("unbalanced"), now.books_at && !now.ok);
}

// gateWord returns the key of the word for the gate's state. A sale in line uses no gate.
function gateWord({ gate, line }) {
  if (!gate.reachable) {
    return "gate_away";
  } else if (gate.open) {
    return "gate_open";
  }
  return line ? "gate_unused" : "gate_closed";
}

// drawLine shows the figures of a sale that is in line.
function drawLine(line) {
  show(at("in-line"), line);
  if (!line) {
    return;
  }
  const ended = line.spent + line.lapsed;
  tile("entered", number(line.entries), `phase_${line.phase}`);
  tile("waiting", number(line.waiting), "note_serving", { n: number(line.serving) });
  tile("called", number(line.called), "note_reserved", { n: number(line.reserved) });
  tile("no_show", ended ? `${Math.round((100 * line.lapsed) / ended)} %` : "–", ended ? "note_calls" : "no_calls_yet", { n: number(ended) });
}

// tile shows a figure, unless it is null, and a note below it.
function tile(name, value, note, places) {
  const place = at(`tile-${name}`);
  if (value !== null) {
    place.querySelector(".value").textContent = value;
  }
  say(place.querySelector(".note"), note, places);
}

function drawCharts(now, verdicts) {
  const seconds = Date.parse(now.now) / 1000;
  const sum = (all) => Object.values(all).reduce((a, b) => a + b, 0);
  stock.add(seconds, [now.available, now.held, now.paid]);
  if (verdicts) {
    const { accepted = 0, sold_out: soldOut = 0 } = verdicts;
    rates.add(seconds, [accepted, soldOut, sum(verdicts) - accepted - soldOut]);
  } else {
    rates.add(seconds, [null, null, null]);
  }
}

// drawAge shows when the orders were summed up, if the sums are old.
function drawAge({ now, books_at: summed }) {
  const late = Date.parse(now) - Date.parse(summed) > old;
  show(at("books-at"), late);
  if (late) {
    say(at("books-at"), "books_at", { time: () => dateTime(Date.parse(summed), "medium") });
  }
}

const rate = (n) => (n === null ? "–" : number(n < 10 ? Math.round(n * 10) / 10 : Math.round(n)));
