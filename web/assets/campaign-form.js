// The forms for a campaign with its variants, and for one more variant.

import { at, show } from "./dom.js";
import {
  checkPrices, checkTimes, copyOf, currency, description, hasStarted, local, moment, mostEach, mostMinutes, mostParts, mostUnits, ofLine, picture,
  prices, title, untilStart, usualLine, usualTimes, whole,
} from "./fields.js";
import { formOf } from "./form.js";
import { say } from "./i18n.js";

// The engine's bounds, so that mistakes are shown before anything is sent.
const longestTitle = 130;
const longestVariant = 60;
export const mostVariants = 64;

// Fields of one variant. A variant without a limit has the campaign's limit.
const ofVariant = {
  variant: { read: (typed) => title(typed, longestVariant, "wrong_variant"), write: String },
  quota: { read: (typed) => whole(typed, 1, mostUnits), write: String },
  ...prices,
  limit_per_user: { read: (typed) => (typed.trim() ? whole(typed, 1, mostEach) : undefined), write: String },
};

// The fields of the form. Those of the variants are added and removed with their rows, under names such as sales[0].quota.
const fields = {
  title: { read: (typed) => title(typed, longestTitle), write: String },
  description: { read: description, write: String },
  image_url: { read: picture, write: String },
  currency: { read: currency, write: String },
  limit_per_user: { read: (typed) => whole(typed, 1, mostEach), write: String },
  pay_timeout_seconds: { read: (typed) => whole(typed, 1, mostMinutes) * 60, write: (seconds) => String(seconds / 60) },
  stock_shown: { read: String, write: String },
  parts: { read: (typed) => whole(typed, 1, mostParts), write: String },
  starts_at: { read: moment, write: local },
  ends_at: { read: moment, write: local },
  ...ofLine,
};

const rows = at("campaign-rows");
const names = Object.keys(ofVariant);

// values returns what is typed in the rows, by the names of their fields.
const values = () => [...rows.children].map((row) => names.map((name) => row.querySelector(`[data-name="${name}"]`).value));

// arrange shows a row for each list of values. The names of the fields contain the row's number, so all rows are made anew.
function arrange(lists) {
  Object.keys(fields).filter((name) => name.startsWith("sales[")).forEach((name) => delete fields[name]);
  rows.replaceChildren(...lists.map((list, i) => {
    const row = at("campaign-row").content.firstElementChild.cloneNode(true);
    say(row.querySelector("legend"), "variant_n", { n: i + 1 });
    names.forEach((name, k) => {
      const key = `sales[${i}].${name}`;
      const input = row.querySelector(`[data-name="${name}"]`);
      const field = input.closest(".field");
      input.id = `campaign-${key}`;
      input.value = list[k];
      field.querySelector("label").htmlFor = input.id;
      field.querySelector(".error").id = `${input.id}-error`;
      input.setAttribute("aria-describedby", `${input.id}-error`);
      fields[key] = ofVariant[name];
    });
    const remove = row.querySelector("button");
    remove.hidden = lists.length === 1;
    remove.addEventListener("click", () => {
      arrange(values().toSpliced(i, 1));
      keep();
      at("campaign-more").focus();
    });
    return row;
  }));
}

// began makes a row for each variant of the original, or more if more were typed before a reload, and at least one. The variants
// of an existing campaign are not in the form.
function began(typed, existing, original) {
  show(at("campaign-sales"), !existing);
  if (existing) {
    arrange([]);
    return;
  }
  const typedRows = Object.keys({ ...original, ...typed }).map((name) => Number(name.match(/^sales\[(\d+)\]/)?.[1] ?? 0));
  arrange(Array.from({ length: Math.max(0, ...typedRows) + 1 }, () => names.map(() => "")));
}

// campaignCopy returns what a copy of a campaign begins with. Its first variant has the terms that are common to all.
export function campaignCopy({ sales, ...campaign }) {
  const copy = { ...sales[0], ...copyOf({ entries_at: sales[0].entries_at, ...campaign }) };
  sales.forEach((sale, i) => {
    names.filter((name) => name !== "limit_per_user" || sale[name] !== campaign[name]).forEach((name) => {
      copy[`sales[${i}].${name}`] = sale[name];
    });
  });
  return copy;
}

// nested moves the values of the variants, such as sales[0].quota, into a list of objects, sales.
function nested(flat) {
  const sales = [];
  const body = {};
  for (const [name, value] of Object.entries(flat)) {
    const [, i, field] = name.match(/^sales\[(\d+)\]\.(.+)$/) ?? [];
    if (field) {
      (sales[i] ??= {})[field] = value;
    } else {
      body[name] = value;
    }
  }
  return sales.length > 0 ? { ...body, sales } : body;
}

function usual(existing) {
  if (existing) {
    const [{ pay_timeout_seconds, stock_shown }] = existing.sales;
    return { pay_timeout_seconds, stock_shown };
  }
  return { ...usualLine, currency: "CNY", limit_per_user: 1, pay_timeout_seconds: 1800, stock_shown: "exact", parts: 1, ...usualTimes() };
}

const { open, drafted, keep } = formOf({
  prefix: "campaign-",
  fields,
  usual,
  address: (campaign) => (campaign ? ["PATCH", `/admin/campaigns/${campaign.id}`] : ["POST", "/admin/campaigns"]),
  words: { create: "new_campaign", edit: "edit_campaign", send: "create_campaign", save: "save" },
  // The fields of the line are changed on the line's page.
  fits: (name, campaign) => !(name in ofLine) && !(untilStart.includes(name) && hasStarted(campaign)),
  inCampaign: () => true,
  check: (all, fine, campaign) => [
    ...checkTimes(all, fine, campaign), ...[...rows.children].flatMap((_, i) => checkPrices(all, fine, `sales[${i}].`)),
  ],
  body: nested,
  began,
});
export { drafted, open };

at("campaign-more").addEventListener("click", () => {
  if (rows.children.length < mostVariants) {
    arrange([...values(), names.map(() => "")]);
    keep();
    rows.lastElementChild.querySelector("input").focus();
  }
});

// oneMore returns the form for one more variant of a campaign. currencyOf() returns the campaign's currency.
export const oneMore = (campaignID, currencyOf) => formOf({
  prefix: "variant-",
  scope: campaignID,
  fields: ofVariant,
  usual: () => ({ currency: currencyOf() }),
  address: () => ["POST", `/admin/campaigns/${campaignID}/sales`],
  words: { create: "new_variant", send: "create_variant" },
  check: (all, fine) => checkPrices(all, fine),
});
