// Small things that all pages do with elements.

export const at = (id) => document.getElementById(id);

export const show = (element, yes) => { element.hidden = !yes; };

// enable switches a button. It stays where the keyboard is, so that nobody loses their place: whoever listens to its
// clicks asks enabled().
export const enable = (button, yes) => button.setAttribute("aria-disabled", String(!yes));
export const enabled = (button) => button.getAttribute("aria-disabled") !== "true";
