// What every page has: the switch of the language, the account, and a picture for those that can't be shown.

import "./account.js";
import { setLanguage } from "./i18n.js";

for (const button of document.querySelectorAll("button.language")) {
  button.addEventListener("click", () => {
    setLanguage(button.value);
    document.querySelector("button.language:not(:lang(" + button.value + "))")?.focus(); // this one is gone now
  });
}

function instead(picture) {
  if (picture.dataset.instead) {
    picture.src = picture.dataset.instead;
    delete picture.dataset.instead;
  }
}

// Errors of pictures don't bubble; those from before this module ran show in what they are.
document.addEventListener("error", (event) => instead(event.target), true);
for (const picture of document.images) {
  if (picture.complete && picture.naturalWidth === 0) {
    instead(picture);
  }
}
