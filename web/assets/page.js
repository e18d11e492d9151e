// What every page has: the switch of the language, the account, and a replacement for pictures that can't be loaded.

import "./account.js";
import { setLanguage } from "./i18n.js";

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
