// The console's page of the shop: what buyers' pages show of it, and who changed that.

import { call } from "./api.js";
import { refresh as refreshLog, start as startLog } from "./console-log.js";
import { attend, element, onClick, repeat } from "./desk.js";
import { at, show } from "./dom.js";
import { Mistake, picture, short } from "./fields.js";
import { formOf } from "./form.js";
import { hush, reason, say } from "./i18n.js";

// period is how often the shop is read again while the page is visible, in milliseconds.
const period = 5000;

// The engine's bounds, so that mistakes are shown before anything is sent.
const longestName = 60;
const longestSmallPrint = 500;

let shop = null; // as the server said last

const link = { read: picture, write: String };
const form = formOf({
  prefix: "shop-",
  fields: {
    name: { read: (typed) => short(typed, longestName), write: String },
    home_url: link,
    logo_url: link,
    color: { read: color, write: String },
    terms_url: link,
    privacy_url: link,
    imprint_url: link,
    small_print: { read: (typed) => short(typed, longestSmallPrint), write: String },
  },
  usual: () => ({}),
  address: () => ["PUT", "/admin/shop"],
  words: { edit: "edit_shop", save: "save" },
  body: (changes) => ({ ...shop, ...changes }), // the request replaces all fields
});

function color(typed) {
  const code = typed.trim().toLowerCase();
  if (code && !/^#[0-9a-f]{6}$/.test(code)) {
    throw new Mistake("wrong_color");
  }
  return code;
}

function draw({ shop: said, colors }) {
  shop = said;
  for (const place of document.querySelectorAll("#shop-facts [data-field]")) {
    place.textContent = shop[place.dataset.field] || "–";
  }
  show(at("colors"), colors);
  if (colors) {
    say(at("colors"), "colors_as_set", colors);
    document.querySelector("[data-field=color]").prepend(swatch(colors.light), swatch(colors.dark));
  }
}

function swatch(code) {
  const made = element("span", "swatch");
  made.style.backgroundColor = code; // the policy forbids a style in the page's source, and allows this
  return made;
}

async function load() {
  try {
    draw((await call("GET", "/admin/shop")).data);
    await refreshLog();
    hush(at("shop-error"));
  } catch (refusal) {
    reason(at("shop-error"), refusal);
  }
}

onClick(at("edit"), at("shop-error"), async () => {
  show(at("notice"), false);
  draw((await call("GET", "/admin/shop")).data);
  form.open(shop, async (changed) => {
    draw(changed);
    say(at("notice"), "shop_saved");
    show(at("notice"), true);
    await refreshLog();
  });
});

attend((signal) => {
  startLog("/admin/shop-operations");
  repeat(signal, period, load);
});
