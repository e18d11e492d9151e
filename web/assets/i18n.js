// Words, amounts and times in the language of the page. The words are in web/words, one file for each language. The
// server writes the same words into the pages.

const words = {};
const symbols = {};
const currencies = []; // at n, the codes of those with n digits after the point

// learn adds words in each language, and the symbols and digits of currencies. The modules of words call it, so each page imports those that
// it needs.
export function learn(more, signs, digits) {
  Object.assign(symbols, signs);
  Object.assign(currencies, digits);
  for (const [name, texts] of Object.entries(more)) {
    words[name] = { ...words[name], ...texts };
  }
}

// values keeps, for each element that shows a word, the values of the places in the word, so that the word can be written again
// in another language.
const values = new WeakMap();

// language is the language of the page or, on a page of a shop in a language that has no words here, English.
export function language() {
  const [tag] = document.documentElement.lang.split("-");
  return tag in words ? tag : "en";
}

// setLanguage switches the page to a language. The choice is stored as plain text, for lang.js.
export function setLanguage(to) {
  document.documentElement.lang = to;
  try {
    localStorage.setItem("language", to);
  } catch {
    // the language is valid until the page is left
  }
  for (const element of document.querySelectorAll("[data-say]")) {
    say(element, element.dataset.say, values.get(element));
  }
}

// text returns a word with its {places} replaced by values. A value that depends on the language is a function.
function text(key, places = {}) {
  return words[language()][key].replace(/\{(\w+)\}/g, (_, name) => {
    const value = places[name];
    return typeof value === "function" ? value() : value;
  });
}

export const knows = (key) => key in words[language()];

// say writes a word into an element, now and whenever the language changes. The word is always text, never markup.
export function say(element, key, places) {
  element.dataset.say = key;
  values.set(element, places);
  const said = text(key, places);
  if (element.textContent !== said) {
    element.textContent = said;
  }
}

// wordOf returns the key of the word for a refusal. Any other error is a bug of ours and is reported to the browser's
// console.
export function wordOf(refusal) {
  if (!refusal.code) {
    reportError(refusal);
  }
  const key = `refused_${refusal.code}`;
  return knows(key) ? key : "refused_internal";
}

// reason shows why the server refused: in our words, or in the server's if we have none.
export function reason(element, refusal) {
  const key = wordOf(refusal);
  if (key === "refused_internal" && refusal.detail) {
    hush(element);
    element.textContent = refusal.detail;
  } else {
    say(element, key);
  }
}

// hush removes what an element shows.
export function hush(element) {
  delete element.dataset.say;
  element.textContent = "";
}

// sayOr writes words, [key, places], into an element, or empties it if there are none.
export function sayOr(element, words) {
  if (words) {
    say(element, ...words);
  } else {
    hush(element);
  }
}

const grouped = new Intl.NumberFormat("en");

export const number = (n) => grouped.format(n);

export const isCurrency = (code) => currencies.some((codes) => codes.split(/\s+/).includes(code));

// digitsOf returns how many digits the amounts of a currency have after the decimal sign, by ISO 4217. Intl has other digits for
// some currencies, which follow the habits of a country. A code that is not known has two, as on the server.
export function digitsOf(currency) {
  const found = currencies.findIndex((codes) => codes.split(/\s+/).includes(currency));
  return found < 0 ? 2 : found;
}

// decimal writes an amount, which is in the smallest unit of its currency, as a decimal number such as 12.50.
export function decimal(smallest, currency) {
  const after = digitsOf(currency);
  const text = String(smallest).padStart(after + 1, "0");
  return after ? `${text.slice(0, -after)}.${text.slice(-after)}` : text;
}

// money formats an amount as the server does.
export function money(smallest, currency) {
  const [whole, ...fraction] = decimal(smallest, currency).split(".");
  const amount = [number(Number(whole)), ...fraction].join(".");
  return currency in symbols ? symbols[currency] + amount : `${amount}\u00a0${currency}`;
}

// dateTime formats a moment for the locale, without the date if it is today. timeStyle "medium" includes seconds.
export function dateTime(at, timeStyle = "short") {
  const moment = new Date(at);
  const today = moment.toDateString() === new Date().toDateString();
  const form = today ? { timeStyle } : { dateStyle: "medium", timeStyle };
  return new Intl.DateTimeFormat(locale(), form).format(moment);
}

// zoned is dateTime with the time zone, for moments that others may have named in theirs, such as the start of a sale.
export function zoned(at) {
  const parts = new Intl.DateTimeFormat(locale(), { timeZoneName: "short" }).formatToParts(new Date(at));
  return `${dateTime(at)} ${parts.find(({ type }) => type === "timeZoneName").value}`;
}

// span formats a number of seconds in the largest unit that needs no fraction.
export function span(seconds) {
  const [unit, size] = [["hour", 3600], ["minute", 60], ["second", 1]].find(([, of]) => seconds % of === 0);
  return new Intl.NumberFormat(locale(), { style: "unit", unit, unitDisplay: "long" }).format(seconds / size);
}

// locale returns the browser's form of the page's language, such as en-GB.
export function locale() {
  return navigator.languages.find((tag) => tag.split("-")[0] === language()) ?? language();
}

// duration formats a remaining time as a clock shows it. It is never negative.
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
