// How often and how soon a buyer's page asks, in milliseconds.

// coolDown is how long the button is disabled after a click.
export const coolDown = 1000;

// jitter spreads the first requests of the buyers who wait for the start.
export const jitter = 300;

// calm is how long an answer may take before the page shows that it waits. Most answers are quicker, so the page does not
// flicker.
export const calm = 250;

// lookAgain is how often the page reads a sale whose stream is broken, and an order whose time to pay is over.
export const lookAgain = 5000;

// freshAfter is how long caches may show an old sale.
export const freshAfter = 1000;
