// Buttons that copy a link or another text.

import { pause } from "./api.js";
import { say } from "./i18n.js";

// copies makes a button copy the address of a link, or the text of another element.
export function copies(button, shown) {
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(shown);
    try {
      await navigator.clipboard.writeText(shown.href ?? shown.textContent);
      say(button, "copied");
    } catch {
      say(button, "copy_by_hand"); // the text is selected
    }
    await pause(2000);
    say(button, "copy");
  });
}
