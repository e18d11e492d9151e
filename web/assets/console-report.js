// The report of a sale or a campaign: what it brought, how many got how far, who was refused, and the first minutes by the second.

import { call } from "./api.js";
import { chart } from "./chart.js";
import { range } from "./csv-range.js";
import { coded, put, repeat, row, word } from "./desk.js";
import { at, show } from "./dom.js";
import { begin } from "./figures.js";
import { dateTime, duration, hush, money, number, reason, say } from "./i18n.js";

// period is how often the report is read again while it is shown, in milliseconds.
const period = 5000;

// firstMinutes is the part of the series that the report shows, in seconds. The engine stores it by the second.
const firstMinutes = 600;

const curve = chart(at("report-chart"), ["series_accepted", "series_sold_out", "series_others"]);
let source = "";

// start shows the report of the sale or the campaign that the API has at a path, until the signal aborts.
export function start(path, signal) {
  source = path;
  let known = false;
  repeat(signal, period, async () => {
    if (known && at("report").hidden) {
      return;
    }
    try {
      const report = (await call("GET", `${path}/report`)).data;
      draw(report);
      begin(pointsOf(report));
      known = true;
      hush(at("report-error"));
    } catch (refusal) {
      reason(at("report-error"), refusal);
    }
  });
}

range(() => source, () => `orders-${source.split("/").at(-1)}.csv`);

// pointsOf returns the series since the start as points of charts. In a time without a bucket nobody asked, and the stock stayed as
// it was.
function pointsOf({ starts_at: starts, now, series, stock }) {
  const [from, until] = [Date.parse(starts) / 1000, Date.parse(now) / 1000];
  const buckets = new Map(); // by their begin: the rates of the three curves
  for (const [verdict, list] of Object.entries(series)) {
    for (const [begin, seconds, n] of list.filter(([after]) => after >= 0)) {
      const bucket = buckets.get(begin) ?? { seconds, rates: [0, 0, 0] };
      bucket.rates[{ accepted: 0, queued: 0, sold_out: 1 }[verdict] ?? 2] += n / seconds;
      buckets.set(begin, bucket);
    }
  }
  const ratePoints = [];
  let last = 0; // the end of the last bucket
  const idle = (begin) => {
    if (begin > last) {
      ratePoints.push([from + last, [0, 0, 0]], [from + begin - 0.001, [0, 0, 0]]);
    }
  };
  for (const [begin, { seconds, rates }] of [...buckets].sort(([a], [b]) => a - b)) {
    idle(begin);
    ratePoints.push([from + begin, rates]);
    last = begin + seconds;
  }
  idle(until - from);
  const stockPoints = [];
  let units = null;
  for (const [begin, ...now] of stock) {
    if (begin >= 0) {
      if (units) {
        stockPoints.push([from + Math.max(0, begin - 0.001), units]);
      }
      stockPoints.push([from + begin, now]);
    }
    units = now;
  }
  return { stockPoints, ratePoints };
}

const percent = (part, all) => (all > 0 ? `${Math.round((1000 * part) / all) / 10} %` : "–");

function tile(name, value, note, places) {
  at(`tile-${name}`).querySelector(".value").textContent = value;
  say(at(`tile-${name}`).querySelector(".note"), note, places);
}

function draw(report) {
  const { orders, currency, line, purchases, requests, sold_out_after_seconds: soldOut, orders_at: summed } = report;
  const amount = (cents) => (summed ? money(cents, currency) : "–");
  const count = (statuses) => statuses.reduce((n, status) => n + (orders?.[status]?.orders ?? 0), 0);
  tile("gross", amount(report.gross_cents), "note_net", { amount: amount(report.gross_cents - report.refunds_cents) });
  tile("refunds", amount(report.refunds_cents), "note_refunded", { n: number(count(["refunded"])) });
  tile("units", summed ? number(orders.paid.units) : "–", "note_quota", { n: number(report.quota) });
  tile("sold_out", soldOut === null ? "–" : duration(soldOut * 1000), soldOut === null ? "note_not_sold_out" : "note_after_start");
  show(at("tile-lapsed"), line);
  const ended = line ? line.spent + line.lapsed : 0;
  tile("lapsed", line ? percent(line.lapsed, ended) : "–", ended ? "note_calls" : "no_calls_yet", { n: number(ended) });
  const admitted = (purchases.accepted ?? 0) + (purchases.queued ?? 0);
  const steps = report.mode === "rush"
    ? [[word("step_requests", "span"), requests], [word("step_admitted", "span"), admitted]]
    : [[word("step_entries", "span"), line?.entries ?? 0]];
  if (report.mode !== "rush" && ended > 0) { // a draw of a single sale has no calls
    steps.push([word("step_calls", "span"), ended]);
  }
  steps.push([word("step_orders", "span"), count(Object.keys(orders ?? {}))], [word("step_paid", "span"), count(["paid", "refunded"])]);
  put(at("steps"), steps.map(([step, n], i) => row([step, number(n), i ? percent(n, steps[i - 1][1]) : "–"], [1, 2])), "none_yet");
  const refusals = Object.entries(purchases).filter(([verdict]) => verdict !== "accepted" && verdict !== "queued");
  put(at("refusals"), refusals.sort((a, b) => b[1] - a[1]).map(([verdict, n]) => row(
    [coded("verdict", verdict), number(n), percent(n, requests)], [1, 2])), "none_yet");
  say(at("report-at"), summed ? "books_at" : "report_not_summed", { time: () => dateTime(Date.parse(summed), "medium") });
  const until = Date.parse(report.starts_at) / 1000 + firstMinutes;
  curve.fill(pointsOf(report).ratePoints.filter(([seconds]) => seconds <= until));
}
