// This module opens and closes all dialogs.

import { at } from "./dom.js";

// converse opens a dialog. It resolves to the value that end() was called with, or to null if the user closed the dialog.
// begin(end, signal) adds the listeners that may call end. The signal aborts at the end, so that no listener of one
// opening acts on another. While stays() is true, the dialog can't be left.
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
    // A browser may close a dialog by itself. The event comes late. If the dialog is open, the event belongs to an
    // earlier opening and is ignored.
    dialog.addEventListener("close", () => dialog.open || end(null), { signal });
    dialog.showModal();
    begin(end, signal);
  });
}

// ask opens a question of the page. It resolves to true if the answer was yes, and to null otherwise.
export const ask = (question = "ask") => converse(at(question), (end, signal) => {
  at(`${question}-yes`).addEventListener("click", () => end(true), { signal });
});
