// The form for a new sale, or for the changes of an existing one.

import {
  checkPrices, checkTimes, copyOf, currency, description, hasStarted, local, moment, mostEach, mostMinutes, mostParts, mostUnits, ofLine, picture,
  prices, title, untilStart, usualLine, usualTimes, whole,
} from "./fields.js";
import { formOf } from "./form.js";

// The engine's bound, so that a mistake is shown before anything is sent.
const longestTitle = 200;

// ofCampaign are the fields that a sale of a campaign takes from the campaign, or does not have. ofItsLine are the only fields
// that can be changed in the sale that has the campaign's line.
const ofItsLine = ["entries_at", "call_seconds", "beacon", "entry_work"];
const ofCampaign = ["title", "starts_at", "ends_at", "waiting_list", "currency", "pay_timeout_seconds", "stock_shown", ...ofItsLine];

const fields = {
  title: { read: (typed) => title(typed, longestTitle), write: String },
  description: { read: description, write: String },
  image_url: { read: picture, write: String },
  currency: { read: currency, write: String },
  ...prices,
  quota: { read: (typed) => whole(typed, 1, mostUnits), write: String },
  limit_per_user: { read: (typed) => whole(typed, 1, mostEach), write: String },
  pay_timeout_seconds: { read: (typed) => whole(typed, 1, mostMinutes) * 60, write: (seconds) => String(seconds / 60) },
  parts: { read: (typed) => whole(typed, 1, mostParts), write: String },
  starts_at: { read: moment, write: local },
  ends_at: { read: moment, write: local },
  stock_shown: { read: String, write: String },
  ...ofLine,
  waiting_list: { read: (typed) => typed === "true", write: String },
};

function usual(existing) {
  const missing = { ...usualLine, waiting_list: false };
  return existing ? missing : { ...missing, currency: "CNY", limit_per_user: 1, pay_timeout_seconds: 1800, stock_shown: "exact", parts: 1, ...usualTimes() };
}

export const { open, drafted } = formOf({
  fields,
  usual,
  address: (sale) => (sale ? ["PATCH", `/admin/sales/${sale.id}`] : ["POST", "/admin/sales"]),
  words: { create: "new_sale", edit: "edit_sale", send: "create", save: "save" },
  fits: (name, sale) => {
    if (untilStart.includes(name) && hasStarted(sale)) {
      return false;
    }
    if (sale.campaign_id === sale.id) {
      return ofItsLine.includes(name);
    }
    return !sale.campaign_id || !ofCampaign.includes(name);
  },
  check: (values, fine, sale) => [...checkPrices(values, fine), ...checkTimes(values, fine, sale)],
});
