// The form for a new sale, or for the changes of an existing one.

import { now } from "./clock.js";
import {
  amount, cents, checkPrices, checkTimes, currency, description, local, moment, mostCents, mostEach, mostMinutes, mostParts, mostUnits,
  picture, title, whole,
} from "./fields.js";
import { formOf } from "./form.js";

// The engine's bounds, so that mistakes are shown before anything is sent.
const longestTitle = 200;
const shortestCall = 5;
const longestCall = 7 * 24 * 3600;
const mostWork = 10_000_000; // hashes

const hour = 3600_000;

// ofCampaign are the fields that a sale of a campaign has from the campaign, or not at all.
const ofCampaign = ["title", "starts_at", "ends_at", "waiting_list", "entries_at", "call_seconds"];

const fields = {
  title: { read: (typed) => title(typed, longestTitle), write: String },
  description: { read: description, write: String },
  image_url: { read: picture, write: String },
  price_cents: { read: (typed) => cents(typed, mostCents), write: amount },
  original_price_cents: { read: (typed) => (typed.trim() ? cents(typed, mostCents) : 0), write: amount },
  currency: { read: currency, write: String },
  quota: { read: (typed) => whole(typed, 1, mostUnits), write: String },
  limit_per_user: { read: (typed) => whole(typed, 1, mostEach), write: String },
  pay_timeout_seconds: { read: (typed) => whole(typed, 1, mostMinutes) * 60, write: (seconds) => String(seconds / 60) },
  parts: { read: (typed) => whole(typed, 1, mostParts), write: String },
  starts_at: { read: moment, write: local },
  ends_at: { read: moment, write: local },
  mode: { read: String, write: String },
  beacon: { read: (typed) => typed === "true", write: String },
  entry_work: { read: (typed) => whole(typed, 0, mostWork), write: String },
  waiting_list: { read: (typed) => typed === "true", write: String },
  entries_at: { read: (typed) => (typed ? moment(typed) : undefined), write: local },
  call_seconds: { read: (typed) => whole(typed, shortestCall, longestCall), write: String },
};

function usual(existing) {
  const next = Math.ceil(now() / hour) * hour;
  const missing = { mode: "rush", waiting_list: false, call_seconds: 120, beacon: false, entry_work: 0 }; // the API leaves out what a sale doesn't have
  return existing ? missing : { ...missing, currency: "CNY", limit_per_user: 1, pay_timeout_seconds: 1800, parts: 1, starts_at: next, ends_at: next + hour };
}

export const { open, drafted } = formOf({
  fields,
  usual,
  address: (sale) => (sale ? ["PATCH", `/admin/sales/${sale.id}`] : ["POST", "/admin/sales"]),
  words: { create: "new_sale", edit: "edit_sale", send: "create", save: "save" },
  fits: (name, sale) => !sale.campaign_id || !ofCampaign.includes(name),
  check: (values, fine, sale) => [...checkPrices(values, fine), ...checkTimes(values, fine, sale)],
});
