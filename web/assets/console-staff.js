// The console's staff: accounts of people, keys of servers, their roles, and who changed them.

import { call } from "./api.js";
import { confirm } from "./confirm.js";
import { refresh as refreshLog, start as startLog } from "./console-log.js";
import { attend, coded, element, label, loggedIn, onClick, repeat, row, stamp, tell, word } from "./desk.js";
import { at, show } from "./dom.js";
import { hush, reason, say } from "./i18n.js";
import { copies } from "./share.js";

// period is how often the list is read again while the page is visible, in milliseconds.
const period = 5000;

const error = at("staff-error");

for (const [id, kind, codes] of [["staff-kind", "kind", ["person", "key"]], ["staff-role", "role", ["viewer", "support", "operator", "holds"]]]) {
  at(id).append(...codes.map((code) => option(kind, code)));
}
copies(at("copy"), at("secret"));

function option(kind, code) {
  const made = new Option("", code);
  say(made, `${kind}_${code}`);
  return made;
}

// load reads the list. While the focus is in the list, it is drawn again only if an action on this page has changed it.
async function load(changed = false) {
  try {
    const { staff } = (await call("GET", "/admin/staff")).data;
    if (changed || !at("staff").matches(":focus-within")) {
      at("staff").replaceChildren(...staff.map(lineOf));
    }
    await refreshLog();
    hush(at("notice"));
    show(at("notice"), false);
  } catch (refusal) {
    reason(at("notice"), refusal);
    show(at("notice"), true);
  }
}

function lineOf({ name, kind, role, created_at: created, used_at: used }) {
  const builtIn = name === "admin";
  const buttons = element("span", "actions");
  buttons.dataset.for = "operator";
  if (!builtIn) {
    const renew = word(`renew_${kind}`, "button", "plain");
    renew.addEventListener("click", () => act("renew_secret", name, "POST", "/secret"));
    const remove = word(`remove_${kind}`, "button", "plain");
    remove.addEventListener("click", () => act("remove_staff", name, "DELETE", ""));
    buttons.append(renew, remove);
    buttons.querySelectorAll("button").forEach((button) => { button.type = "button"; });
  }
  return label(row([
    element("span", "id", name), coded("kind", kind), builtIn || role === "holds" ? coded("role", role) : choice(name, role),
    stamp(created), used ? stamp(used) : "–", buttons,
  ]), at("staff-table"));
}

// choice makes the field with the role of an account, which an operator may change.
function choice(name, role) {
  const made = element("select");
  made.append(...["viewer", "support", "operator"].map((code) => option("role", code)));
  made.value = role;
  made.disabled = document.documentElement.dataset.role !== "operator";
  made.ariaLabel = name;
  made.addEventListener("change", async () => {
    hush(error);
    try {
      await loggedIn(() => call("PATCH", `/admin/staff/${name}`, { body: { role: made.value } }));
    } catch (refusal) {
      made.value = role;
      tell(error, refusal);
    }
    await load(true);
  });
  return made;
}

// act asks the user, and then changes an account. If that makes a new secret, act shows the secret.
async function act(question, name, method, path) {
  const changed = await confirm(question, {
    places: { name },
    grave: true,
    work: async () => (await call(method, `/admin/staff/${name}${path}`)).data,
  });
  if (changed) {
    await load(true);
    at("staff-title").focus(); // the button that had the focus is gone
    reveal(changed);
  }
}

// reveal shows a secret, which no later answer has. Without a secret it shows nothing.
function reveal({ name, secret }) {
  at("secret").textContent = secret ?? "";
  say(at("made-title"), "secret_of", { name });
  show(at("made"), secret);
  if (secret) {
    at("made-title").focus();
  }
}

at("staff-form").addEventListener("submit", (event) => event.preventDefault());
onClick(at("staff-send"), error, async () => {
  const body = { name: at("staff-name").value.trim(), kind: at("staff-kind").value, role: at("staff-role").value };
  reveal(await loggedIn(async () => (await call("POST", "/admin/staff", { body })).data));
  at("staff-name").value = "";
  await load(true);
});

attend((signal) => {
  reveal({ name: "" });
  startLog("/admin/staff-operations");
  repeat(signal, period, () => load());
});
