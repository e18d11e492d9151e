// The console's endpoints: the URLs to which events are sent, their states, and who changed them.

import { call } from "./api.js";
import { confirm } from "./confirm.js";
import { close as closeDeliveries, open as openDeliveries, refresh as refreshDeliveries } from "./console-deliveries.js";
import { refresh as refreshLog, start as startLog } from "./console-log.js";
import { action, attend, coded, element, label, loggedIn, onClick, repeat, row, stamp, tell, word } from "./desk.js";
import { at, show } from "./dom.js";
import { Mistake, whole } from "./fields.js";
import { hush, number, reason, say } from "./i18n.js";
import { copies } from "./share.js";

// period is how often the list is read again while the page is visible, in milliseconds.
const period = 5000;

// mostRate is the engine's bound, so that a mistake is shown before anything is sent.
const mostRate = 100_000;

// reasons are the keys of the words for why the engine has switched an endpoint off. Any other reason is shown as it is.
const reasons = { "it answered 410": "reason_gone", "it failed for 24h0m0s": "reason_failed" };

const error = at("endpoint-error");
const fields = ["url", "rate"];

copies(at("copy"), at("secret"));

// load reads the list. While the focus is in the list or a question is open, the list is drawn again only if an action on this
// page has changed it: a button in use must not go away.
async function load(changed = false) {
  try {
    const { endpoints } = (await call("GET", "/admin/endpoints")).data;
    if (changed || !at("endpoints").matches(":focus-within") && !at("confirm").open) {
      at("endpoints").replaceChildren(...endpoints.map(lineOf));
      show(at("endpoints-none"), endpoints.length === 0);
      show(at("endpoints-table").parentElement, endpoints.length > 0);
    }
    await refreshDeliveries(endpoints);
    await refreshLog();
    hush(at("notice"));
    show(at("notice"), false);
  } catch (refusal) {
    reason(at("notice"), refusal);
    show(at("notice"), true);
  }
}

function lineOf(endpoint) {
  const address = element("span", "id long", endpoint.url);
  address.id = endpoint.id;
  const which = element("span");
  which.append(address, element("span", "id quiet below", endpoint.id)); // the log names endpoints by their ids
  return label(row([
    which, stateOf(endpoint), endpoint.position, failing(endpoint), number(endpoint.rate), buttonsOf(endpoint),
  ], [2, 4]), at("endpoints-table"));
}

function stateOf({ state, reason: why }) {
  const made = element("span");
  const badge = coded("endpoint", state);
  badge.className = "state";
  badge.dataset.state = state;
  made.append(badge);
  if (why) {
    const more = element("span", "quiet below", why);
    if (why in reasons) {
      say(more, reasons[why]);
    }
    made.append(more);
  }
  return made;
}

function failing({ failing_since: since, tries }) {
  if (!since) {
    return "–";
  }
  const made = element("span");
  made.append(stamp(since), word("failed_tries", "span", "quiet below", { n: number(tries ?? 0) }));
  return made;
}

// buttonsOf returns the buttons of an endpoint. All of the staff may look at its deliveries; an operator may change it.
function buttonsOf({ id, url, state, position }) {
  const made = element("span", "actions");
  const other = state === "on" ? "off" : "on";
  const changes = [
    action(`switch_${other}`, id, () => act(`switch_${other}`, { url, position }, "PATCH", id, { state: other })),
    action("renew_endpoint", id, () => act("renew_endpoint", { url }, "POST", `${id}/secret`)),
    action("remove_endpoint", id, () => act("remove_endpoint", { url }, "DELETE", id)),
  ];
  changes.forEach((button) => { button.dataset.for = "operator"; });
  made.append(action("deliveries", id, () => openDeliveries({ id, url })), ...changes);
  return made;
}

// act asks the user, and then changes an endpoint. If that makes a new secret, act shows the secret.
async function act(question, places, method, path, body) {
  const changed = await confirm(question, {
    places,
    grave: question !== "switch_on",
    work: async () => (await call(method, `/admin/endpoints/${path}`, { body })).data,
  });
  if (changed) {
    await load(true);
    at("endpoints-title").focus(); // the button that had the focus is gone
    reveal(changed, "secret_renewed");
  }
}

// reveal shows a secret, which no later answer has, and says what to do with it. Without a secret it shows nothing.
function reveal({ url, secret }, more) {
  at("secret").textContent = secret ?? "";
  show(at("made"), secret);
  if (secret) {
    say(at("made-title"), "secret_for", { url });
    say(at("made-more"), more);
    at("made-title").focus();
  }
}

// complain shows a reason beside the field that it is about, or below the form.
function complain(refusal) {
  const place = fields.includes(refusal.field) ? at(`endpoint-${refusal.field}-error`) : error;
  if (refusal instanceof Mistake) {
    say(place, refusal.word, refusal.places);
  } else {
    tell(place, refusal);
  }
  if (place !== error) {
    at(`endpoint-${refusal.field}`).setAttribute("aria-invalid", "true");
    at(`endpoint-${refusal.field}`).focus();
  }
}

// read returns the body to send. If no rate is typed, the engine takes its usual rate. read throws a Mistake with its field.
function read() {
  const body = { url: at("endpoint-url").value.trim() };
  const typed = at("endpoint-rate").value.trim();
  if (typed) {
    try {
      body.rate = whole(typed, 1, mostRate);
    } catch (mistake) {
      throw Object.assign(mistake, { field: "rate" });
    }
  }
  return body;
}

at("endpoint-form").addEventListener("submit", (event) => event.preventDefault());
onClick(at("endpoint-send"), error, async () => {
  for (const name of fields) {
    hush(at(`endpoint-${name}-error`));
    at(`endpoint-${name}`).removeAttribute("aria-invalid");
  }
  try {
    const body = read();
    reveal(await loggedIn(async () => (await call("POST", "/admin/endpoints", { body })).data), "secret_made");
    for (const name of fields) {
      at(`endpoint-${name}`).value = "";
    }
  } catch (refusal) {
    complain(refusal);
    if (refusal.field) {
      return; // nothing was made, and the button takes the next click at once
    }
  }
  await load(true);
});

attend((signal) => {
  reveal({});
  closeDeliveries();
  startLog("/admin/endpoint-operations");
  repeat(signal, period, () => load());
});
