// Words, amounts and times in the language of the page. The words are in web/words, one file a language; the server
// writes the same words into the pages.

import { symbols, words } from "./words.js";

// learn adds words to those that all pages have.
export function learn(more) {
  for (const [name, texts] of Object.entries(more)) {
    Object.assign(words[name], texts);
  }
}

// values are those of the elements that have said something, so that they can say it again in another language.
const values = new WeakMap();

export const language = () => document.documentElement.lang;

// setLanguage switches the page to a language. It is kept as plain text, for lang.js.
export function setLanguage(to) {
  document.documentElement.lang = to;
  try {
    localStorage.setItem("language", to);
  } catch {
    // it holds until the page goes
  }
  for (const element of document.querySelectorAll("[data-say]")) {
    say(element, element.dataset.say, values.get(element));
  }
}

// text is a word with its {places} filled in. A value that depends on the language is given as a function.
function text(key, places = {}) {
  return words[language()][key].replace(/\{(\w+)\}/g, (_, name) => {
    const value = places[name];
    return typeof value === "function" ? value() : value;
  });
}

export const knows = (key) => key in words[language()];

// say lets an element say a word, now and whenever the language changes. It is always text, never markup.
export function say(element, key, places) {
  element.dataset.say = key;
  values.set(element, places);
  const said = text(key, places);
  if (element.textContent !== said) {
    element.textContent = said;
  }
}

// wordOf is the key of our words for a refusal. An error that is none is a mistake of ours, and goes to the console.
export function wordOf(refusal) {
  if (!refusal.code) {
    reportError(refusal);
  }
  const key = `refused_${refusal.code}`;
  return knows(key) ? key : "refused_internal";
}

// reason says why the server refused: in its own words where we have none.
export function reason(element, refusal) {
  const key = wordOf(refusal);
  if (key === "refused_internal" && refusal.detail) {
    hush(element);
    element.textContent = refusal.detail;
  } else {
    say(element, key);
  }
}

// hush takes back what an element said.
export function hush(element) {
  delete element.dataset.say;
  element.textContent = "";
}

const grouped = new Intl.NumberFormat("en");

export const number = (n) => grouped.format(n);

// money writes an amount as the server does.
export function money(cents, currency) {
  const amount = `${number(Math.floor(cents / 100))}.${String(cents % 100).padStart(2, "0")}`;
  return currency in symbols ? symbols[currency] + amount : `${amount}\u00a0${currency}`;
}

// dateTime is a moment as people here write it, without the date if it is today; timeStyle "medium" has seconds.
export function dateTime(at, timeStyle = "short") {
  const moment = new Date(at);
  const today = moment.toDateString() === new Date().toDateString();
  const form = today ? { timeStyle } : { dateStyle: "medium", timeStyle };
  return new Intl.DateTimeFormat(locale(), form).format(moment);
}

// locale is how the browser wants this language written: en-GB, say.
export function locale() {
  return navigator.languages.find((tag) => tag.split("-")[0] === language()) ?? language();
}

// duration is a time that is left, never less than nothing, as a clock shows it.
export function duration(milliseconds) {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000));
  const parts = [Math.floor(seconds / 60) % 60, seconds % 60];
  const hours = Math.floor(seconds / 3600);
  if (hours > 0) {
    parts.unshift(hours % 24);
  }
  const clock = parts.map((part) => String(part).padStart(2, "0")).join(":");
  return hours < 24 ? clock : `${text("days", { n: number(Math.floor(hours / 24)) })} ${clock}`;
}
