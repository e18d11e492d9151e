// Small functions for elements that all pages use.

export const at = (id) => document.getElementById(id);

export const show = (element, yes) => { element.hidden = !yes; };

// enable enables or disables a button. A disabled button keeps the focus, and still gets clicks: each listener has to
// check enabled().
export const enable = (button, yes) => button.setAttribute("aria-disabled", String(!yes));
export const enabled = (button) => button.getAttribute("aria-disabled") !== "true";
