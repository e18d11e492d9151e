// The page of a sale that has a line, a draw or a waiting list: it lets the buyer enter, shows the own place, and tells
// when the buyer is called. sale.js runs the rest of the page.

import "./page.js";
import { enter as logIn } from "./account.js";
import { call, changed, look, pause, session } from "./api.js";
import { now } from "./clock.js";
import { ask } from "./dialog.js";
import { at, enable, enabled, show } from "./dom.js";
import { dateTime, duration, hush, number, reason, say, span, zoned } from "./i18n.js";
import { noted, unpaid } from "./order.js";
import { isFleeting, patience } from "./purchase.js";
import { commitmentOf, rank, seedOf, verifyInclusion } from "./ranks.js";
import { join, offerUnpaid, redraw } from "./sale.js";
import { isLined, isPrize, kindOf } from "./sale-words.js";
import { lasting } from "./store.js";
import { solve } from "./work.js";

// period is how often the public state of the line is read, in milliseconds. Up to half as much again is added at random.
// Caches keep the state for a second.
const period = 1000;

// calm is how often the state is read, in milliseconds, while the event stream brings it too. The stream sends it at least every
// 15 seconds; if the stream has sent nothing for heardFor, the page does not rely on it.
const calm = 5000;
const heardFor = 20_000;

// askCalled is how often the own entry is read, in milliseconds, while the buyer is called: an operator may let calls end later.
const askCalled = 15_000;

// asksPerSecond is about how many buyers read their entries in a second at the end of a draw or a line. Without this bound, all
// who wait would read at once.
const asksPerSecond = 5000;

// askAgain is the time, in milliseconds, after which the own entry is read again if it disagrees with the line.
const askAgain = 2000;

// recent is how many of the buyer's newest orders are read to find that of a spent entry, and looks how often: a copy of the
// database may have the order a little later.
const recent = 20;
const looks = 3;

const id = at("sale").dataset.line; // of the sale that has the line
const key = `entry ${id}`;
const title = document.querySelector("title");
const plainTitle = title.textContent;

let sale = null; // as sale.js last showed it
let lined = false; // units go by call; once true, this stays true
let mine = null; // the own entry: {user, number, quantity, state, rank, units, until}
let version = 0; // counts the changes of mine, so that a late answer does not replace a newer one
let line = null; // the public state
let place = null; // the own rank
let proved = null; // what came of the check of the rank: "right", "late" or "wrong"; null: not checked
let checked = ""; // the phase of the line in which the check was begun
let seen = ""; // the phase of the line when the entry was last read
let asked = -Infinity;
let heard = -Infinity; // when the event stream brought the state
let looked = -Infinity; // when the state was last read
let wake = () => {}; // ends the pause between two steps
let due = Infinity; // when the own entry is read again
let working = false; // the work for an entry is being done
let busy = false; // an entry is being made or looked for
let entering = false; // the buyer may enter, now or later
let looksLeft = looks; // for the order of a spent entry

const called = () => mine?.state === "called";
const won = () => mine?.state === "spent" && isPrize(sale);
const kind = () => kindOf(sale);
const started = () => now() >= Date.parse(sale.starts_at);

// form returns what the page offers in place of the purchase: {hidden}, or the button as {word, places, enabled, busy}. It
// returns null if the buyer may buy.
function form(said, state) {
  sale = said;
  lined ||= isLined(sale, state);
  entering = false;
  const opens = Date.parse(sale.entries_at ?? 0);
  if (!lined || called()) {
    return null;
  } else if (mine) {
    return { hidden: true };
  } else if (state === "ended") {
    return { word: "state_ended" };
  } else if (sale.mode === "draw" && started()) {
    return { word: "entries_over" };
  }
  entering = true;
  if (now() < opens) {
    return { word: "entries_open", places: { time: () => duration(opens - now()) } };
  }
  return { word: working ? "enter_work" : `enter_${kind()}`, enabled: !busy, busy };
}

// enter makes the entry, or finds the one that the buyer has. It throws the Refusal. For waiting see patience in purchase.js.
async function enter(quantity, waiting) {
  if (!session() && !(await logIn("why_enter"))) {
    return;
  }
  const user = session().id;
  busy = true;
  redraw();
  try {
    const made = await send(sale.entry_work ? { quantity, altcha: await work() } : { quantity }, waiting);
    if (session()?.id === user && !mine) {
      take({ number: made.number, quantity: made.quantity, state: "waiting" });
    }
  } finally {
    busy = false;
  }
  at("place-title").focus();
}

// work does the work that the sale asks of its entrants, and returns the solution. Meanwhile the button asks for a moment.
async function work() {
  working = true;
  redraw();
  try {
    return await solve((await call("GET", `/sales/${id}/entries/challenge`)).data);
  } finally {
    working = false;
    redraw();
  }
}

// send sends the entry. A repeated request makes no second entry.
async function send(body, waiting) {
  const rest = patience(now(), waiting);
  for (;;) {
    try {
      return (await call("POST", `/sales/${id}/entries`, { body })).data;
    } catch (refusal) {
      if (!isFleeting(refusal)) {
        throw refusal;
      }
      await rest(refusal, refusal.wait || 1);
    }
  }
}

// refresh reads the own entry. If there is no answer, the page keeps what it knows.
async function refresh() {
  const [user, before, phase] = [session()?.id, version, line?.phase ?? ""];
  asked = performance.now();
  let entry = null;
  try {
    entry = user ? (await call("GET", `/sales/${id}/entries/mine`)).data : null;
  } catch (refusal) {
    entry = refusal.status === 404 || refusal.status === 401 ? null : mine;
  }
  if (before === version) {
    seen = phase;
    take(entry);
  }
}

function take(entry) {
  const was = mine?.state;
  version++;
  mine = entry && { ...entry, user: session()?.id };
  place = mine?.rank ?? null;
  proved = null;
  checked = "";
  if (mine) {
    lasting.write(key, mine);
  }
  redraw();
  if (mine?.state === was) {
    return;
  }
  looksLeft = looks;
  if (called()) {
    fillIn();
    beep();
  } else if (won()) {
    beep();
  }
}

// fillIn chooses all units of the call. The page must have been drawn with the call before, so that the choice has this number.
function fillIn() {
  at("quantity").value = mine.units;
  redraw();
}

// recall shows the entry that this browser has stored, and then asks the server for the entry.
async function recall() {
  const kept = lasting.read(key);
  version++;
  mine = kept && kept.user === session()?.id ? kept : null;
  busy = session() !== null && !mine;
  redraw();
  if (called()) {
    fillIn();
  }
  await refresh();
  busy = false;
  redraw();
}

// locate computes the own rank. Until the order is fixed, place stays null. On plain http there is no crypto.subtle to compute
// with, so the page shows the rank that the server gives.
async function locate() {
  const entry = mine;
  const n = line.n ?? 0;
  if (!line.seed && (n > 0 || !["calling", "over"].includes(line.phase))) {
    return;
  }
  let found = entry.rank ?? null;
  if (entry.number >= n) {
    found = entry.number;
  } else if (crypto.subtle) {
    found = await rank(line.seed, n, entry.number);
  }
  if (entry === mine) {
    place = found;
  }
}

// verify checks what was published against the commitment, and the own entry and rank against what was published.
async function verify() {
  if (mine.rank === undefined) {
    await refresh(); // often the page has computed the rank and not asked the server for it
  }
  const [entry, { commitment, n, randomness, root, secret, seed }] = [mine, line];
  if (entry?.rank === undefined) {
    return;
  }
  const late = entry.number >= n;
  const { tag, path } = late ? {} : (await call("GET", `/sales/${id}/entries/mine/proof`)).data;
  const right = (await commitmentOf(secret)) === commitment && (await seedOf(secret, root, randomness)) === seed &&
    (await rank(seed, n, entry.number)) === entry.rank && (late || (await verifyInclusion(root, n, entry.number, tag, path)));
  if (entry === mine) {
    proved = right ? (late ? "late" : "right") : "wrong";
  }
}

// step brings line, place and entry up to date.
async function step() {
  const waits = mine.state === "waiting";
  const since = performance.now();
  const rest = since - heard < heardFor ? calm : 0;
  if (line === null || (started() && (waits || ["entering", "sealed"].includes(line.phase)) && since - looked >= rest)) {
    looked = since;
    line = await look(`/sales/${id}/line`);
  }
  await locate();
  const fixed = line.seed || ["calling", "over"].includes(line.phase);
  const drawn = line.mode === "draw" && line.phase === "calling" && seen !== line.phase;
  const passed = waits && fixed && (place === null || place < line.serving);
  const over = waits && (line.phase === "over" || drawn);
  const late = called() && (now() > Date.parse(mine.until) || performance.now() - asked > askCalled);
  if (!passed && !over && !late) {
    due = Infinity;
  } else if (due === Infinity) {
    due = performance.now() + (passed || late ? 0 : (Math.random() * line.entries * 1000) / asksPerSecond);
  }
  if (performance.now() >= due && performance.now() - asked > askAgain) {
    due = Infinity;
    await refresh();
  }
  const provable = crypto.subtle && line.seed && line.secret && ["calling", "over"].includes(line.phase);
  if (mine && provable && at("proof").open && checked !== line.phase) {
    checked = line.phase;
    await verify();
  }
  if (mine?.state === "spent" && looksLeft > 0) {
    await findOrder();
  }
  redraw();
}

// findOrder looks for the order of a spent entry, so that the page offers to pay it: a draw makes the orders of its winners.
async function findOrder() {
  looksLeft--;
  const { data: { orders } } = await call("GET", `/orders?limit=${recent}`);
  orders.toReversed().forEach(noted);
  if (orders.some((order) => order.sale_id === id)) {
    looksLeft = 0;
  }
  offerUnpaid();
}

// hear takes the state that the event stream brings, and lets the next step begin at once.
function hear(state) {
  heard = looked = performance.now();
  line = state;
  wake();
}

async function follow() {
  for (;;) {
    if (sale && mine) {
      await step().catch((refusal) => refusal.code || reportError(refusal)); // a later round of this loop repeats the step
    }
    await Promise.race([pause(period * (1 + Math.random() / 2)), new Promise((resolve) => { wake = resolve; })]);
  }
}

// draw shows the own place, unless the page shows an order or waits for one.
function draw(stage) {
  const shown = mine !== null && lined && (stage === "choose" || stage === "asking");
  show(at("place"), shown);
  drawProof();
  drawHow();
  const unpaidPrize = won() && unpaid().some((order) => order.sale_id === id);
  if (called() || unpaidPrize) {
    say(title, called() ? "place_called_title" : "place_won_title", { title: plainTitle });
  } else if (title.dataset.say) {
    hush(title);
    title.textContent = plainTitle;
  }
  if (!shown) {
    return;
  }
  const word = wordOf();
  const before = place === null || !line ? 0 : place - line.serving;
  at("place").dataset.status = mine.state;
  at("place-now").setAttribute("aria-live", called() ? "assertive" : "polite");
  say(at("place-title"), `place_${word}`, { before: number(before) });
  const choice = sale.campaign_id ? { called: "called_choice", entered_draw: "entered_choice" }[word] : null;
  say(at("place-more"), `place_${choice ?? word}_more`, { time: () => duration(sale.call_seconds * 1000), round: line?.round ?? "" });
  drawPace(before);
  show(at("place-clock"), called());
  if (called()) {
    const until = Date.parse(mine.until);
    say(at("place-clock"), "place_clock", { left: () => duration(until - now()), time: () => dateTime(until, "medium") });
  }
  const active = called() || mine.state === "waiting";
  show(at("place-leave"), active);
  show(at("place-sound"), active);
  say(at("place-sound"), loud() ? "sound_on" : "sound_off");
  show(at("place-orders"), mine.state === "spent");
}

// drawHow says how the line or draw works to a buyer who may enter it.
function drawHow() {
  show(at("how"), entering);
  if (!entering) {
    return;
  }
  const starts = Date.parse(sale.starts_at);
  const when = kind() === "line" && started() ? "line_late" : kind();
  say(at("how-when"), `how_${when}_when`, { time: () => zoned(starts), left: () => duration(starts - now()) });
  show(at("how-units"), sale.quota !== undefined);
  say(at("how-units"), `how_${kind()}_units`, { n: number(sale.quota ?? 0) });
  show(at("how-entries"), line);
  say(at("how-entries"), "how_entries", { n: number(line?.entries ?? 0) });
  const cost = kind() === "draw" && sale.campaign_id ? "choice" : kind();
  say(at("how-cost"), `how_${cost}_cost`, {
    amount: at("price").querySelector("strong").textContent, // of a campaign: its prices
    call: () => span(sale.call_seconds), pay: () => span(sale.pay_timeout_seconds),
  });
  say(at("how-end"), "how_end", { time: () => zoned(sale.ends_at), left: () => duration(Date.parse(sale.ends_at) - now()) });
}

// drawPace shows the estimated wait on a waiting list, from the number of calls since the first entry.
function drawPace(before) {
  const known = mine.state === "waiting" && sale.mode === "rush" && place !== null && line?.first_at;
  show(at("place-pace"), known);
  if (!known) {
    return;
  }
  const left = ((before + 1) * (now() - Date.parse(line.first_at))) / line.serving;
  const word = now() + left < Date.parse(sale.ends_at) ? "pace" : "pace_late";
  say(at("place-pace"), line.serving > 0 ? word : "pace_none", { time: () => duration(left) });
}

// wordOf returns the part NAME of the keys place_NAME and place_NAME_more, the words for the own place.
function wordOf() {
  const inDraw = sale.mode === "draw";
  if (mine.state === "spent" || mine.state === "lost") {
    return inDraw ? `${mine.state}_draw` : mine.state;
  } else if (mine.state !== "waiting") {
    return mine.state;
  } else if (!started() || line?.phase === "entering") {
    return inDraw ? "entered_draw" : "entered";
  } else if (line?.round && !line.seed && line.phase === "sealed") {
    return "beacon";
  } else if (!line || place === null || line.phase === "sealed") {
    return "drawing";
  } else if (inDraw) {
    return place > line.serving ? "waiting_draw" : "next";
  }
  return place > line.serving ? "waiting" : "next";
}

// drawProof shows the values from which the rank follows, and the result of their check: to a winner beside the order too.
function drawProof() {
  const shown = mine !== null && line !== null && sale.mode !== "rush";
  show(at("proof"), shown);
  if (!shown) {
    return;
  }
  for (const [name, value] of Object.entries({ ...line, number: mine.number, rank: place })) {
    const shown = document.getElementById(`proof-${name}`);
    if (shown) {
      shown.textContent = value ?? "–";
    }
  }
  const open = crypto.subtle ? "open" : "cannot";
  const word = proved ?? (line.seed ? open : "waits");
  at("proof-result").dataset.result = word;
  say(at("proof-result"), `proof_${word}`);
  show(at("proof-all"), line.secret);
}

const loud = () => lasting.read("sound") !== false;

// beep plays two short tones. A browser plays nothing before the first click on the page.
function beep() {
  if (!loud() || !navigator.userActivation?.hasBeenActive) {
    return;
  }
  const sound = new AudioContext();
  const volume = new GainNode(sound, { gain: 0.2 });
  volume.connect(sound.destination);
  for (const [i, frequency] of [660, 880].entries()) {
    const tone = new OscillatorNode(sound, { frequency });
    tone.connect(volume);
    tone.start(sound.currentTime + i * 0.2);
    tone.stop(sound.currentTime + i * 0.2 + 0.18);
    tone.addEventListener("ended", () => i === 1 && sound.close());
  }
}

at("place-sound").addEventListener("click", () => {
  lasting.write("sound", !loud());
  beep();
  redraw();
});

at("place-leave").addEventListener("click", async () => {
  if (!enabled(at("place-leave")) || !(await ask("leave"))) {
    return;
  }
  enable(at("place-leave"), false);
  hush(at("place-error"));
  try {
    const { data } = await call("DELETE", `/sales/${id}/entries/mine`);
    take({ ...mine, ...data });
    at("place-title").focus();
  } catch (refusal) {
    await refresh(); // the entry may have been spent meanwhile, or the line is over
    if (refusal.status !== 404) {
      reason(at("place-error"), refusal);
    }
  }
  enable(at("place-leave"), true);
});

at("proof").addEventListener("toggle", () => { checked = ""; }); // the next step checks

changed.addEventListener("session", recall);
addEventListener("storage", (event) => {
  if (event.key === key) {
    refresh(); // another tab has seen that the user entered, left or was called
  }
});

join({ form, enter, refresh, hear, draw, lined: () => lined || mine !== null, most: () => (called() ? mine.units : null) });
recall();
follow();
