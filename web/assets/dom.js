// Small functions for elements that all pages use.

// mostChoices bounds a list of quantities.
const mostChoices = 99;

export const at = (id) => document.getElementById(id);

export const show = (element, yes) => { element.hidden = !yes; };

// fill gives a list the quantities from 1 to n, and keeps the one that is chosen.
export function fill({ options }, n) {
  while (options.length > Math.min(n, mostChoices)) {
    options.remove(options.length - 1);
  }
  while (options.length < Math.min(n, mostChoices)) {
    options.add(new Option(options.length + 1));
  }
}

// fillBar shows what is left of a sale's stock, or hides the bar if the sale hides its stock.
export function fillBar(bar, { available, quota }) {
  show(bar, quota !== undefined);
  if (quota !== undefined) {
    [bar.max, bar.value] = [quota, available];
  }
}

// enable enables or disables a button. A disabled button keeps the focus, and still gets clicks: each listener has to
// check enabled().
export const enable = (button, yes) => button.setAttribute("aria-disabled", String(!yes));
export const enabled = (button) => button.getAttribute("aria-disabled") !== "true";
