// The form for a new sale, or for the changes of an existing one. Its fields have the names of the API, so that the
// reason of a refusal is shown beside the field that it is about.

import { call } from "./api.js";
import { now } from "./clock.js";
import { loggedIn, tell } from "./desk.js";
import { at, enable, enabled, show } from "./dom.js";
import { Mistake, amount, cents, local, moment, whole, zone } from "./fields.js";
import { hush, number, reason, say } from "./i18n.js";
import { newKey, passing } from "./store.js";

// The engine's bounds, so that mistakes are shown before anything is sent.
const longestTitle = 200;
const longestDescription = 2000;
const mostCents = 100_000_000_00;
const mostUnits = 100_000_000;
const mostEach = 10_000;
const mostMinutes = 7 * 24 * 60;
const mostParts = 16;
const longestAddress = 500;
const shortestCall = 5;
const longestCall = 7 * 24 * 3600;
const mostWork = 10_000_000; // hashes

const hour = 3600_000;

// For each field, read converts the typed text or throws a Mistake, and write formats a value of a sale.
const fields = {
  title: { read: title, write: String },
  description: { read: description, write: String },
  image_url: { read: picture, write: String },
  price_cents: { read: (typed) => cents(typed, mostCents), write: amount },
  original_price_cents: { read: (typed) => (typed.trim() ? cents(typed, mostCents) : 0), write: amount },
  currency: { read: currency, write: String },
  quota: { read: (typed) => whole(typed, 1, mostUnits), write: String },
  limit_per_user: { read: (typed) => whole(typed, 1, mostEach), write: String },
  pay_timeout_seconds: { read: (typed) => whole(typed, 1, mostMinutes) * 60, write: (seconds) => String(seconds / 60) },
  parts: { read: (typed) => whole(typed, 1, mostParts), write: String },
  starts_at: { read: moment, write: local },
  ends_at: { read: moment, write: local },
  mode: { read: String, write: String },
  beacon: { read: (typed) => typed === "true", write: String },
  entry_work: { read: (typed) => whole(typed, 0, mostWork), write: String },
  waiting_list: { read: (typed) => typed === "true", write: String },
  entries_at: { read: (typed) => (typed ? moment(typed) : undefined), write: local },
  call_seconds: { read: (typed) => whole(typed, shortestCall, longestCall), write: String },
};

const form = at("form");
const send = at("form-send"); // disabled until there is an answer, so that a second click sends nothing
let sale = null; // the sale that is changed; null for a new one
let before = {}; // the values of the fields when the form was opened
let onSaved = null;
let opener = null; // the element that had the focus

// open shows the form for a new sale (null) or an existing one. It calls saved(sale) with the sale that the server has
// made or changed. What was typed before a reload is restored.
export function open(existing, saved) {
  sale = existing;
  onSaved = saved;
  opener = document.activeElement;
  const next = Math.ceil(now() / hour) * hour;
  const usual = { mode: "rush", waiting_list: false, call_seconds: 120, beacon: false, entry_work: 0 }; // the public data of a sale leaves out what it doesn't have
  const shown = { ...usual, ...(existing ?? { currency: "CNY", limit_per_user: 1, pay_timeout_seconds: 1800, parts: 1, starts_at: next, ends_at: next + hour }) };
  const typed = drafted(existing) ?? {};
  for (const [name, { write }] of Object.entries(fields)) {
    before[name] = name in shown ? write(shown[name]) : "";
    at(name).value = typed[name] ?? before[name];
    show(at(name).closest(".field"), names().includes(name));
    complain(name);
  }
  say(at("form-title"), existing ? "edit_sale" : "new_sale");
  say(send, existing ? "save" : "create");
  say(at("zone"), "zone", zone(shown.starts_at));
  hush(at("form-error"));
  show(form, true);
  at("title").focus();
}

// drafted returns what was typed for a new sale (null) or an existing one but not sent, by field, or null.
export const drafted = (existing) => passing.read(`draft ${existing?.id ?? "new"}`);

// names returns the names of the fields that are shown: an existing sale has fields that can't be changed.
const names = () => Object.keys(fields).filter((name) => !sale || !at(name).closest(".fixed"));

const changed = () => names().filter((name) => at(name).value !== before[name]);

// keyFor returns the Idempotency-Key for a body. The same body gets the same key, so that a retry after a lost answer
// makes no second sale.
function keyFor(body) {
  const text = JSON.stringify(body);
  const kept = passing.read("asked");
  const asked = kept?.text === text ? kept : { text, key: newKey() };
  passing.write("asked", asked);
  return asked.key;
}

function close() {
  passing.remove(`draft ${sale?.id ?? "new"}`);
  passing.remove("asked");
  show(form, false);
  opener.focus();
}

function title(typed) {
  const n = [...typed.trim()].length;
  if (n < 1 || n > longestTitle) {
    throw new Mistake("wrong_title", { most: number(longestTitle) });
  }
  return typed.trim();
}

function description(typed) {
  const n = [...typed.trim()].length;
  if (n > longestDescription) {
    throw new Mistake("wrong_long", { n: number(n), most: number(longestDescription) });
  }
  return typed.trim();
}

// picture reads the URL of a picture that pages may load: a path or https. Their policy forbids http.
function picture(typed) {
  const address = typed.trim();
  const n = [...address].length;
  if (n > longestAddress) {
    throw new Mistake("wrong_long", { n: number(n), most: number(longestAddress) });
  }
  if (address && !(address.startsWith("/") && !address.startsWith("//")) && !(/^https:\/\/./.test(address) && URL.canParse(address))) {
    throw new Mistake("wrong_image_url");
  }
  return address;
}

function currency(typed) {
  const code = typed.trim().toUpperCase();
  if (!/^[A-Z]{3}$/.test(code)) {
    throw new Mistake("wrong_currency");
  }
  return code;
}

// read returns the body to send. If there are mistakes, it shows each beside its field and returns null.
function read() {
  const values = { ...sale };
  const mistakes = new Map();
  for (const name of names()) {
    try {
      values[name] = fields[name].read(at(name).value);
    } catch (mistake) {
      mistakes.set(name, mistake);
    }
  }
  const fine = (...among) => !among.some((name) => mistakes.has(name));
  if (fine("price_cents", "original_price_cents") && values.original_price_cents && values.original_price_cents <= values.price_cents) {
    mistakes.set("original_price_cents", new Mistake("wrong_original"));
  }
  if (fine("starts_at", "ends_at") && values.ends_at <= values.starts_at) {
    mistakes.set("ends_at", new Mistake("wrong_order"));
  } else if (fine("ends_at") && !sale && Date.parse(values.ends_at) <= now()) {
    mistakes.set("ends_at", new Mistake("wrong_past"));
  }
  for (const name of names()) {
    const mistake = mistakes.get(name);
    complain(name, mistake && ((error) => say(error, mistake.word, mistake.places)));
  }
  at(names().find((name) => mistakes.has(name)))?.focus();
  return mistakes.size === 0 ? Object.fromEntries((sale ? changed() : names()).map((name) => [name, values[name]])) : null;
}

// complain shows a reason beside a field. Without a reason it removes the one that is shown.
function complain(name, write) {
  hush(at(`${name}-error`));
  at(name).removeAttribute("aria-invalid");
  if (write) {
    write(at(`${name}-error`));
    at(name).setAttribute("aria-invalid", "true");
  }
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  hush(at("form-error"));
  const body = enabled(send) ? read() : null;
  if (!body) {
    return;
  }
  if (Object.keys(body).length === 0) {
    close(); // nothing was changed
    return;
  }
  enable(send, false);
  send.setAttribute("aria-busy", "true");
  try {
    const { data } = await loggedIn(() => (sale
      ? call("PATCH", `/admin/sales/${sale.id}`, { body })
      : call("POST", "/admin/sales", { body, headers: { "Idempotency-Key": keyFor(body) } })));
    close();
    onSaved(data);
  } catch (refusal) {
    if (names().includes(refusal.field)) {
      complain(refusal.field, (error) => reason(error, refusal));
      at(refusal.field).focus();
    } else {
      tell(at("form-error"), refusal);
    }
  } finally {
    enable(send, true);
    send.removeAttribute("aria-busy");
  }
});

// Typed and chosen values survive a reload.
form.addEventListener("input", () => {
  passing.write(`draft ${sale?.id ?? "new"}`, Object.fromEntries(changed().map((name) => [name, at(name).value])));
});

at("form-leave").addEventListener("click", () => enabled(send) && close());
