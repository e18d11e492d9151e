// The button that copies the short link of a sale.

import { pause } from "./api.js";
import { at } from "./dom.js";
import { say } from "./i18n.js";

at("copy").addEventListener("click", async () => {
  getSelection().selectAllChildren(at("short"));
  try {
    await navigator.clipboard.writeText(at("short").href);
    say(at("copy"), "copied");
  } catch {
    say(at("copy"), "copy_by_hand"); // the link is selected
  }
  await pause(2000);
  say(at("copy"), "copy");
});
