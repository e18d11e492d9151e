// The form that saves the orders of a range of dates as a file.

import { onClick } from "./desk.js";
import { at } from "./dom.js";
import { save } from "./download.js";

// range makes the form save the orders of the sales that the API has at path() in a file of this name. The dates are days of this
// device's time zone, and the last one is included.
export function range(path, name) {
  onClick(at("range-csv"), at("range-error"), () => {
    const query = new URLSearchParams();
    const [from, to] = ["range-from", "range-to"].map((id) => at(id).value && new Date(`${at(id).value}T00:00`));
    if (from) {
      query.set("from", from.toISOString());
    }
    if (to) {
      to.setDate(to.getDate() + 1);
      query.set("to", to.toISOString());
    }
    return save(`${path()}/orders.csv?${query}`, name(), at("range-told"));
  });
}
