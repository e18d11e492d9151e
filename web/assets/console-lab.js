// The console's lab: it runs strategies under the same load, shows the run, and lists the reports of earlier runs.

import { Refusal, call } from "./api.js";
import { confirm } from "./confirm.js";
import { load as loadRehearsals } from "./console-rehearsals.js";
import { attend, coded, element, list, loggedIn, milliseconds, put, row, stamp, tell, word } from "./desk.js";
import { at, show } from "./dom.js";
import { follow } from "./feed.js";
import { Mistake, whole } from "./fields.js";
import { dateTime, hush, knows, number, reason, say } from "./i18n.js";

// usual is the default load, which shows the differences between strategies within seconds on any machine.
const usual = { buyers: 2000, stock: 200, concurrency: 50 };

let limits = usual;
let watching = null; // aborts the watch of a run

// load fetches and shows the strategies, the reports, and the run under way.
async function load(signal) {
  try {
    const { data } = await call("GET", "/admin/lab");
    limits = data.limits;
    drawChoices(data.strategies);
    drawReports(data.reports);
    say(at("stores"), "stores_are", data.stores);
    for (const name of Object.keys(usual)) {
      at(name).value ||= Math.min(usual[name], limits[name]);
      say(at(`${name}-hint`), "range", { most: number(limits[name]) });
    }
    show(at("notice"), false);
    if (data.running) {
      watch(signal);
    }
  } catch (refusal) {
    reason(at("notice"), refusal);
    show(at("notice"), true);
  }
}

function drawChoices(strategies) {
  if (at("strategies").children.length > 0) {
    return; // the choices stay
  }
  for (const { name, how } of strategies) {
    const box = element("input");
    Object.assign(box, { type: "checkbox", name: "strategy", value: name, checked: true, id: `strategy-${name}` });
    box.setAttribute("aria-describedby", `lesson-${name}`);
    const label = element("label", "", name);
    label.htmlFor = box.id;
    const lesson = knows(`lesson_${name}`) ? word(`lesson_${name}`, "p", "hint") : element("p", "hint", how);
    lesson.id = `lesson-${name}`;
    const choice = element("li");
    choice.append(box, label, lesson);
    at("strategies").append(choice);
  }
}

// watch shows a run until it is done, then its report.
function watch(signal) {
  watching?.abort();
  const mine = watching = new AbortController();
  let lost = false; // whether the connection has broken
  const end = (id) => {
    mine.abort();
    finish(id, signal);
  };
  // look ends the watch if no run is under way: a server that has restarted does not know the run, and its stream sends
  // nothing.
  const look = async () => {
    const { data } = await call("GET", "/admin/lab");
    if (!data.running && !mine.signal.aborted) {
      end("");
    }
  };
  signal.addEventListener("abort", () => mine.abort(), { signal: mine.signal });
  follow("/admin/lab/events", {
    signal: mine.signal,
    hear: (event, data) => {
      if (event === "progress") {
        drawRun(data);
      } else if (event === "done") {
        end(data.id);
      }
    },
    line: (word) => {
      at("line").dataset.line = word;
      say(at("line"), { connecting: "connecting", live: "live", broken: "connection_broken" }[word]);
      if (word === "live" && lost) {
        look().catch(() => {}); // if look fails, the stream soon breaks as well, and look is called at the next connection
      }
      lost = word === "broken";
    },
  }).catch(complain);
}

function complain(refusal) {
  show(at("run"), true);
  reason(at("run-error"), refusal);
}

// finish shows the report of a run that is over; the id is empty if there is none.
async function finish(id, signal) {
  await load(signal);
  if (id) {
    await showReport(id);
  } else {
    arrange(false);
    show(at("run-report"), false);
    say(at("run-error"), "run_failed");
  }
}

function drawRun(run) {
  say(at("run-title"), "run_title");
  say(at("run-now"), "run_now", { strategy: run.strategy, index: run.index, of: run.of });
  at("run-progress").max = run.of * run.buyers;
  at("run-progress").value = (run.index - 1) * run.buyers + run.done;
  drawResults(run, run.results);
  arrange(true);
}

// arrange shows the elements for a run under way, or those for a report.
function arrange(running) {
  show(at("run"), true);
  hush(at("run-error"));
  for (const id of ["line", "run-now", "run-progress", "stop"]) {
    show(at(id), running);
  }
  show(at("run-report"), !running);
  show(at("start"), !running);
  document.querySelectorAll("#reports button").forEach((button) => show(button, !running));
}

// showReport shows the figures of a report in the page.
async function showReport(id) {
  try {
    const report = await reportOf(id);
    say(at("run-title"), "run_title_done", { time: () => dateTime(Date.parse(report.started_at)) });
    drawResults(report, report.strategies);
    at("run-report").href = `/lab/reports/${id}`;
    arrange(false);
    at("run-title").focus();
  } catch (refusal) {
    complain(refusal);
  }
}

async function reportOf(id) {
  const answer = await fetch(`/lab/reports/${id}.json`).catch(() => { throw new Refusal("network"); });
  if (!answer.ok) {
    throw new Refusal(answer.status === 404 ? "not_found" : "unavailable");
  }
  return answer.json();
}

function drawResults({ buyers, stock, concurrency }, results) {
  say(at("run-load"), "run_load", { buyers: number(buyers), stock: number(stock), concurrency: number(concurrency) });
  const [most, slowest] = ["persisted_per_second", "p99_ms"].map((name) => Math.max(...results.map((result) => result[name])));
  put(at("results"), results.map((result) => {
    const finding = coded("finding", result.verdict);
    finding.className = "state";
    finding.dataset.state = result.verdict;
    return row([
      result.strategy, finding, withBar(number(Math.round(result.persisted_per_second)), result.persisted_per_second, most),
      milliseconds(result.p50_ms), withBar(milliseconds(result.p99_ms), result.p99_ms, slowest), number(result.sold),
      number(result.oversold), number(result.undersold), number(result.retries), number(result.errors),
    ], [2, 3, 4, 5, 6, 7, 8, 9]);
  }), "none_yet");
}

// withBar puts a bar under a figure. The bar is as long as the value's part of the largest value.
function withBar(text, value, largest) {
  const [place, bar] = [element("span", "", text), element("progress")];
  Object.assign(bar, { max: largest || 1, value, ariaHidden: "true" });
  place.append(bar);
  return place;
}

function drawReports(reports) {
  list(at("reports"), at("no-reports"), reports.map(({ id, at: when, strategies, buyers, stock, concurrency, database, redis, url }) => {
    const link = element("a");
    link.href = url;
    link.append(stamp(when));
    const open = word("show_report", "button", "plain");
    open.type = "button";
    open.addEventListener("click", () => showReport(id));
    return [link, number(strategies.length), number(buyers), number(stock), number(concurrency), element("span", "long", `${database}, ${redis}`), open];
  }), [1, 2, 3, 4]);
}

// read returns the plan. If there are mistakes, it shows them beside their fields and returns null.
function read() {
  const plan = { strategies: [...document.querySelectorAll("[name=strategy]:checked")].map((box) => box.value) };
  let wrong = null;
  const object = (name, mistake) => {
    wrong ??= at(name);
    at(name).setAttribute("aria-invalid", "true");
    say(at(`${name}-error`), mistake.word, mistake.places);
  };
  clear();
  if (plan.strategies.length === 0) {
    object("strategies", new Mistake("wrong_strategies"));
    wrong = document.querySelector("[name=strategy]");
  }
  for (const name of Object.keys(usual)) {
    try {
      plan[name] = whole(at(name).value, 1, limits[name]);
    } catch (mistake) {
      object(name, mistake);
    }
  }
  wrong?.focus();
  return wrong ? null : plan;
}

function clear() {
  hush(at("plan-error"));
  for (const name of ["strategies", ...Object.keys(usual)]) {
    at(name).removeAttribute("aria-invalid");
    hush(at(`${name}-error`));
  }
}

async function start(plan, signal) {
  const begin = (more) => loggedIn(() => call("POST", "/admin/lab", { body: { ...plan, ...more } }));
  try {
    await begin({});
  } catch (refusal) {
    if (refusal.code !== "sale_open") {
      throw refusal;
    }
    if (!await confirm("while_open", { grave: true, work: () => begin({ while_open: true }) })) {
      return;
    }
  }
  watch(signal);
}

attend((signal) => {
  load(signal);
  loadRehearsals();
  at("plan").addEventListener("submit", async (event) => {
    event.preventDefault();
    const plan = read();
    if (!plan || at("start").getAttribute("aria-busy") === "true") {
      return;
    }
    at("start").setAttribute("aria-busy", "true");
    try {
      await start(plan, signal);
    } catch (refusal) {
      if (refusal.field && at(`${refusal.field}-error`)) {
        reason(at(`${refusal.field}-error`), refusal);
      } else {
        tell(at("plan-error"), refusal);
      }
      if (refusal.code === "lab_running") {
        watch(signal);
      }
    } finally {
      at("start").removeAttribute("aria-busy");
    }
  }, { signal });
});

at("stop").addEventListener("click", () => confirm("stop", { grave: true, work: async () => (await call("DELETE", "/admin/lab")).data }));
