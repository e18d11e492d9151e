// This module converts typed values into those of the API: amounts into the smallest unit of their currency, whole numbers, local times into moments, texts
// without spaces around them.

import { now } from "./clock.js";
import { decimal, digitsOf, isCurrency, money } from "./i18n.js";

// The engine's bounds, so that mistakes are shown before anything is sent.
const mostCents = 100_000_000_00; // of the smallest unit of any currency
export const mostUnits = 100_000_000;
export const mostEach = 10_000;
export const mostMinutes = 7 * 24 * 60;
export const mostParts = 16;
const shortestCall = 5;
const longestCall = 7 * 24 * 3600;
const mostWork = 10_000_000; // hashes
const longestDescription = 2000;
const longestAddress = 500;

const hour = 3600_000;

// Mistake is an error in a typed value: the key of its word, and the values of the places in the word.
export class Mistake extends Error {
  constructor(word, places) {
    super(word);
    Object.assign(this, { word, places });
  }
}

// whole reads a whole number within bounds. Commas and spaces between digits are allowed.
export function whole(typed, least, most) {
  const digits = typed.replace(/[\s,]/g, "");
  if (!/^\d{1,12}$/.test(digits) || Number(digits) < least || Number(digits) > most) {
    throw new Mistake("wrong_number", { least: grouped(least), most: grouped(most) });
  }
  return Number(digits);
}

// amount reads money such as 12.50 or 12,50 digit by digit, since floating-point numbers are not exact. A comma is a decimal sign
// only if the currency has fewer than three digits, since 1,500 is a number in groups to many.
function amount(typed, { currency: code }) {
  const after = digitsOf(code);
  const [, whole, sign = ".", fraction = ""] = /^(\d{1,12})(?:([.,])(\d{1,3}))?$/.exec(typed.trim()) ?? [];
  const smallest = Number(whole + fraction.padEnd(after, "0"));
  if (whole === undefined || fraction.length > after || (sign === "," && after > 2) || smallest > mostCents) {
    throw new Mistake("wrong_amount", { like: decimal(1250 * 10 ** Math.max(0, after - 2), code), most: money(mostCents, code) });
  }
  return smallest;
}

// prices are the fields of the prices, as formOf wants them. The currency has to be among the values that are read before.
export const prices = {
  price_cents: { unit: "currency", read: amount, write: (n, { currency: code }) => decimal(n, code) },
  original_price_cents: {
    unit: "currency",
    read: (typed, values) => (typed.trim() ? amount(typed, values) : 0), write: (n, { currency: code }) => decimal(n, code),
  },
};

const grouped = (n) => n.toLocaleString("en");

// moment reads a field of date and time, which is in the time zone of this device.
export function moment(typed) {
  const at = new Date(typed);
  if (Number.isNaN(at.getTime()) || at.getFullYear() < 2000 || at.getFullYear() > 2199) {
    throw new Mistake("wrong_time");
  }
  const shown = local(at);
  if (shown.slice(0, 16) !== typed.slice(0, 16)) { // summer time skips this hour, and a browser takes the next one
    throw new Mistake("wrong_skipped", { shown: shown.slice(11, 16) });
  }
  return at.toISOString();
}

// local formats a moment in the form that moment() reads.
export function local(at) {
  const here = new Date(at);
  const two = (n) => String(n).padStart(2, "0");
  const day = `${here.getFullYear()}-${two(here.getMonth() + 1)}-${two(here.getDate())}`;
  const seconds = here.getSeconds() ? `:${two(here.getSeconds())}` : "";
  return `${day}T${two(here.getHours())}:${two(here.getMinutes())}${seconds}`;
}

// zone returns the name of this device's time zone and its offset at a moment.
export function zone(at) {
  const offset = new Intl.DateTimeFormat("en", { timeZoneName: "longOffset" }).formatToParts(new Date(at))
    .find((part) => part.type === "timeZoneName").value.replace("GMT", "UTC");
  return { zone: Intl.DateTimeFormat().resolvedOptions().timeZone, offset };
}

// title reads a text of 1 to most characters. word is the key of the Mistake that it throws for any other text.
export function title(typed, most, word = "wrong_title") {
  const n = [...typed.trim()].length;
  if (n < 1 || n > most) {
    throw new Mistake(word, { most: grouped(most) });
  }
  return typed.trim();
}

export const description = (typed) => short(typed, longestDescription);

export function short(typed, most) {
  const n = [...typed.trim()].length;
  if (n > most) {
    throw new Mistake("wrong_long", { n: grouped(n), most: grouped(most) });
  }
  return typed.trim();
}

// picture reads the URL of a picture that pages may load, or of another page: a path or https. The Content-Security-Policy of the
// pages forbids http.
export function picture(typed) {
  const url = short(typed, longestAddress);
  if (url && !(url.startsWith("/") && !url.startsWith("//")) && !(/^https:\/\/./.test(url) && URL.canParse(url))) {
    throw new Mistake("wrong_image_url");
  }
  return url;
}

export function currency(typed) {
  const code = typed.trim().toUpperCase();
  if (!isCurrency(code)) {
    throw new Mistake("wrong_currency");
  }
  return code;
}

// checkPrices and checkTimes return the mistakes that only a comparison of fields can find, as pairs of a name and a Mistake.
// fine(...names) reports whether these fields were read without a mistake. prefix is the beginning of the fields' names.
export function checkPrices(values, fine, prefix = "") {
  const [price, original] = [`${prefix}price_cents`, `${prefix}original_price_cents`];
  return fine(price, original) && values[original] && values[original] <= values[price] ? [[original, new Mistake("wrong_original")]] : [];
}

export function checkTimes(values, fine, existing) {
  if (fine("starts_at", "ends_at") && values.ends_at <= values.starts_at) {
    return [["ends_at", new Mistake("wrong_order")]];
  }
  return fine("ends_at") && !existing && Date.parse(values.ends_at) <= now() ? [["ends_at", new Mistake("wrong_past")]] : [];
}

// untilStart are the fields that can be changed only before the start, and hasStarted returns whether that is over.
export const untilStart = ["price_cents", "original_price_cents", "currency", "quota", "pay_timeout_seconds", "beacon", "entry_work"];
export const hasStarted = (existing) => now() >= Date.parse(existing.starts_at);

// nextHour returns the next full hour.
const nextHour = () => Math.ceil(now() / hour) * hour;

// usualTimes are the times of something new.
export const usualTimes = () => ({ starts_at: nextHour(), ends_at: nextHour() + hour });

// copyOf returns what a copy of a sale or a campaign begins with. If the original has started, the copy starts at the next full
// hour, and lasts as long.
export function copyOf({ entries_at: entries, ...original }) {
  const starts = Date.parse(original.starts_at);
  if (starts > now()) {
    return entries ? { ...original, entries_at: entries } : original;
  }
  return { ...original, starts_at: nextHour(), ends_at: nextHour() + Date.parse(original.ends_at) - starts };
}

// ofLine are the fields of a line, as formOf wants them. usualLine has the values of fields that the API leaves out of an answer.
export const ofLine = {
  mode: { read: String, write: String },
  beacon: { read: (typed) => typed === "true", write: String },
  entry_work: { read: (typed) => whole(typed, 0, mostWork), write: String },
  entries_at: { read: (typed) => (typed ? moment(typed) : undefined), write: local },
  call_seconds: { read: (typed) => whole(typed, shortestCall, longestCall), write: String },
};
export const usualLine = { mode: "rush", call_seconds: 120, beacon: false, entry_work: 0 };
