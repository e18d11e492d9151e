// Log-in and registration, in a dialog over the page that needs them, so that the page stays as it is.

import { call, changed, session, setSession } from "./api.js";
import { converse } from "./dialog.js";
import { at, show } from "./dom.js";
import { hush, reason, say } from "./i18n.js";
import { depart } from "./outside.js";
import { lasting } from "./store.js";

const dialog = at("account");
const form = at("account-form");
const submit = at("account-submit");
const fields = { name: at("name"), password: at("password") };
const outside = document.getElementById("account-outside"); // only if people log in at the shop's issuer
const passwords = dialog.dataset.passwords !== "no";
const inConsole = document.documentElement.matches(".console");
let registering = false;
let busy = false;
let entering = null; // a promise while the dialog is open

// enter opens the log-in dialog with a reason, and resolves to whether somebody is logged in afterwards. Calls while
// the dialog is open share its result.
export function enter(why) {
  entering ??= converse(dialog, (end, signal) => begin(why, end, signal), () => busy).then(() => session() !== null);
  return entering;
}

function begin(why, end, signal) {
  signal.addEventListener("abort", () => { entering = null; });
  const who = session();
  show(form, !who && passwords);
  if (outside) {
    show(outside, !who);
  }
  show(at("account-in"), who);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submitted(end);
  }, { signal });
  at("account-switch").addEventListener("click", () => arrange(!registering), { signal });
  at("account-out").addEventListener("click", () => {
    setSession(null);
    end();
  }, { signal });
  if (who) {
    dialog.setAttribute("aria-labelledby", "account-name");
    say(at("account-name"), "logged_in_as", { name: who.name });
    at("account-out").focus();
    return;
  }
  dialog.setAttribute("aria-labelledby", "account-title");
  // A returning visitor has an account, and so has the staff in the console: they get the log-in form, and so does everybody if
  // nobody can register.
  arrange(lasting.read("name") === null && !inConsole && !at("account-switch").hidden);
  fields.name.value ||= lasting.read("name") ?? "";
  if (!passwords) {
    dialog.setAttribute("aria-labelledby", "account-outside-title");
    at("account-issuer").focus();
    return;
  }
  show(at("account-reason"), why);
  if (why) {
    say(at("account-reason"), why);
  }
  (fields.name.value ? fields.password : fields.name).focus();
}

// arrange switches the form between registration and log-in. Typed values stay.
function arrange(register) {
  registering = register;
  say(at("account-title"), register ? "register" : "log_in");
  say(submit, register ? "register" : "log_in");
  say(at("account-switch"), register ? "log_in_instead" : "register_instead");
  show(at("name-hint"), register);
  show(at("password-hint"), register);
  fields.password.autocomplete = register ? "new-password" : "current-password";
  clear();
}

function clear() {
  for (const [name, field] of Object.entries(fields)) {
    field.removeAttribute("aria-invalid");
    hush(at(`${name}-error`));
  }
}

// complain shows a reason beside a field and moves the focus to the field.
function complain(name, write) {
  write(at(`${name}-error`));
  fields[name].setAttribute("aria-invalid", "true");
  fields[name].focus();
}

// mistake checks the input as far as that is possible here. It returns [field, word], or undefined if nothing is wrong.
function mistake() {
  const bytes = new TextEncoder().encode(fields.password.value).length;
  if (!/^[A-Za-z0-9._-]{3,32}$/.test(fields.name.value)) {
    return ["name", "bad_name"];
  }
  if (bytes < 8) {
    return ["password", registering ? "bad_password" : "wrong_password"];
  }
  return bytes > 128 ? ["password", "long_password"] : undefined;
}

async function submitted(end) {
  clear();
  fields.name.value = fields.name.value.trim();
  const wrong = mistake();
  if (wrong) {
    complain(wrong[0], (error) => say(error, wrong[1]));
    return;
  }
  if (busy) {
    return;
  }
  busy = true;
  submit.setAttribute("aria-busy", "true");
  try {
    const body = { name: fields.name.value, password: fields.password.value };
    const { data } = await call("POST", registering ? "/users" : "/sessions", { body });
    lasting.write("name", data.user.name);
    fields.password.value = "";
    setSession(data);
    end();
  } catch (refusal) {
    refused(refusal);
  } finally {
    busy = false;
    submit.removeAttribute("aria-busy");
  }
}

function refused(refusal) {
  if (refusal.code === "unauthenticated") {
    complain("password", (error) => say(error, "wrong_password"));
    return;
  }
  const about = refusal.code === "name_taken" || refusal.field === "name" ? "name" : "password";
  complain(about, (error) => reason(error, refusal));
}

outside?.querySelector("button").addEventListener("click", () => {
  hush(at("account-outside-error"));
  depart().catch((refusal) => reason(at("account-outside-error"), refusal));
});
at("account-button").addEventListener("click", () => enter());

function drawButton() {
  const who = session();
  const button = at("account-button");
  if (who) {
    hush(button);
    button.textContent = who.name;
  } else {
    say(button, "log_in");
  }
}

changed.addEventListener("session", drawButton);
drawButton();
