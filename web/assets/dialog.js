// The one door to all dialogs.

import { at } from "./dom.js";

// converse opens a dialog and gives what end() was called with, or null if it was left. begin(end, signal) attaches what
// may end it; the signal aborts then, so that nothing of one opening hears or answers another. While stays() is true,
// nobody can leave.
export function converse(dialog, begin, stays = () => false) {
  const over = new AbortController();
  const { signal } = over;
  return new Promise((resolve) => {
    const end = (given) => {
      if (!signal.aborted) {
        over.abort();
        dialog.close();
        resolve(given);
      }
    };
    const leave = () => stays() || end(null);
    dialog.querySelector("[data-leave]").addEventListener("click", leave, { signal });
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      leave();
    }, { signal });
    // A browser may close a dialog unasked. The event comes late: it may be about an opening before this one.
    dialog.addEventListener("close", () => dialog.open || end(null), { signal });
    dialog.showModal();
    begin(end, signal);
  });
}

// ask opens the question that the page has, and gives whether the answer was yes.
export const ask = () => converse(at("ask"), (end, signal) => {
  at("ask-yes").addEventListener("click", () => end(true), { signal });
});
