// What every page has: the switch of the language, the account, the number of orders to pay, and a replacement for pictures that
// can't be loaded.

import "./words.js";
import "./account.js";
import { changed } from "./api.js";
import { everySecond } from "./clock.js";
import { at, show } from "./dom.js";
import { number, say, setLanguage } from "./i18n.js";
import { unpaid } from "./order.js";

for (const button of document.querySelectorAll("button.language")) {
  button.addEventListener("click", () => {
    setLanguage(button.value);
    document.querySelector("button.language:not(:lang(" + button.value + "))")?.focus(); // the clicked one is hidden
  });
}

function instead(picture) {
  if (picture.dataset.instead) {
    picture.src = picture.dataset.instead;
    delete picture.dataset.instead;
  }
}

// Error events of pictures do not bubble, so they are captured. A picture that failed before this module ran is
// complete and has no width.
document.addEventListener("error", (event) => instead(event.target), true);
for (const picture of document.images) {
  if (picture.complete && picture.naturalWidth === 0) {
    instead(picture);
  }
}

const badge = at("unpaid"); // not in the console

function drawBadge() {
  const n = unpaid().length;
  show(badge, n);
  badge.firstElementChild.textContent = number(n);
  say(badge.lastElementChild, "to_pay", { n: number(n) });
}

if (badge) {
  everySecond(drawBadge);
  changed.addEventListener("session", drawBadge);
}
