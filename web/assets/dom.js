// Small things that all pages do with elements.

export const at = (id) => document.getElementById(id);

export const show = (element, yes) => { element.hidden = !yes; };

// enable switches a button. It stays where the keyboard is, so that nobody loses their place: whoever listens to its
// clicks asks enabled().
export const enable = (button, yes) => button.setAttribute("aria-disabled", String(!yes));
export const enabled = (button) => button.getAttribute("aria-disabled") !== "true";

// ask opens the question that the page has, and gives whether the answer was yes.
export function ask() {
  const dialog = at("ask");
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

at("ask-yes").addEventListener("click", () => at("ask").close("yes"));
at("ask-no").addEventListener("click", () => at("ask").close("no"));
