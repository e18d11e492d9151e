// This module converts typed values into those of the API: amounts into cents, whole numbers, local times into moments.

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

// cents reads an amount such as 12.50 digit by digit, since floating-point numbers are not exact.
export function cents(typed, most) {
  const [, units, fraction = ""] = /^(\d{1,12})(?:\.(\d{1,2}))?$/.exec(typed.trim()) ?? [];
  const amount = Number(units) * 100 + Number(fraction.padEnd(2, "0"));
  if (units === undefined || amount > most) {
    throw new Mistake("wrong_amount", { most: grouped(most / 100) });
  }
  return amount;
}

// amount formats cents in the form that cents() reads.
export const amount = (n) => `${Math.floor(n / 100)}.${String(n % 100).padStart(2, "0")}`;

const grouped = (n) => n.toLocaleString("en");

// moment reads a field of date and time, which is in the time zone of this device.
export function moment(typed) {
  const at = new Date(typed);
  if (Number.isNaN(at.getTime()) || at.getFullYear() < 2000 || at.getFullYear() > 2199) {
    throw new Mistake("wrong_time");
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
