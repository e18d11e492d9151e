// The results of rehearsals, and the report of one of them. A report has texts of servers and files, which are shown as text,
// never as markup.

import { call } from "./api.js";
import { coded, element, list, milliseconds, onClick, put, row, stamp, word } from "./desk.js";
import { at, show } from "./dom.js";
import { dateTime, number, reason, say } from "./i18n.js";

const error = at("rehearsals-error");

// load fetches and shows the list.
export async function load() {
  try {
    const { data } = await call("GET", "/admin/rehearsals");
    list(at("rehearsals"), at("no-rehearsals"), data.rehearsals.map(lineOf), [3, 4, 5]);
  } catch (refusal) {
    reason(error, refusal);
  }
}

function lineOf({ id, at: when, version, same_version: same, verdict, buyers, units, peak_per_second: arrivals }) {
  const [by, made, open] = [element("span", "", version), coded("rehearsal", verdict), word("show_report", "button", "plain")];
  by.append(word(same ? "version_same" : "version_other", "span", "below"));
  made.className = "state";
  made.dataset.state = verdict;
  open.type = "button";
  onClick(open, error, async () => draw((await call("GET", `/admin/rehearsals/${id}`)).data));
  return [stamp(when), by, made, number(buyers), number(units), number(arrivals), open];
}

// counted returns a text that says how often each thing happened.
const counted = (counts) => (counts ?? []).map(({ what, n }) => `${what}: ${number(n)}`).join(", ") || "–";

function draw({ at: when, report }) {
  say(at("rehearsal-title"), "rehearsal_title", { time: () => dateTime(Date.parse(when)) });
  at("rehearsal-crowd").textContent = report.crowd;
  at("rehearsal-findings").replaceChildren(...(report.findings ?? []).map(({ kind, count, found, examples }) =>
    element("li", "error", [`${kind}: ${number(count)}`, found, ...(examples ?? [])].join(": "))));
  const { books, send_lag: lag, machine } = report;
  at("rehearsal-facts").replaceChildren(...[
    ["rehearsal_at", `${report.url}, ${report.database}`],
    ["rehearsal_from", `${machine.cpu || machine.arch}, ${number(machine.cores)} × CPU, ${machine.os}, ${machine.go}`],
    ["arrivals", word("rehearsal_pace", "span", "", {
      peak: number(report.peak_per_second), sustained: number(report.sustained_per_second), p50: milliseconds(lag.p50_ms), p99: milliseconds(lag.p99_ms),
    })],
    ["rehearsal_limit", report.limit || "–"],
    ["rehearsal_missing", word("rehearsal_missed", "span", "", { buyers: number(report.unsent), streams: number(report.no_stream) })],
    ["rehearsal_people", counted(report.people)],
    ["rehearsal_bots", counted(report.bots)],
    ["rehearsal_gave_up", counted(report.gave_up)],
    ["rehearsal_stock", word("rehearsal_books", "span", "", {
      quota: number(books.quota), left: number(books.left), held: number(books.held), paid: number(books.paid), orders: number(books.orders),
    })],
  ].flatMap(([key, value]) => {
    const [term, place] = [element("dt"), element("dd")];
    say(term, key);
    place.append(value);
    return [term, place];
  }));
  put(at("rehearsal-stages"), (report.stages ?? []).map(({ stage, requests, p50_ms: p50, p99_ms: p99, answers }) =>
    row([stage, number(requests), milliseconds(p50), milliseconds(p99), element("span", "long", counted(answers))], [1, 2, 3])), "none_yet");
  show(at("rehearsal"), true);
  at("rehearsal-title").focus();
}
