// The confirmation of an action. The keys of a question's words are ask_NAME, ask_NAME_more and ask_NAME_yes, with
// ask_NAME_field if a value has to be typed, and ask_NAME_reason if a reason has to be typed too.

import { loggedIn, tell } from "./desk.js";
import { converse } from "./dialog.js";
import { at, show } from "./dom.js";
import { Mistake } from "./fields.js";
import { hush, say } from "./i18n.js";

// period is how often the hint of a field is updated, in milliseconds.
const period = 1000;

const input = at("confirm-value");
const reasonInput = at("confirm-reason");
const error = at("confirm-error");

// confirm asks the question and calls work if the answer is yes. If there is a field, work gets the value that read()
// returned. A refusal is shown in the dialog, and the typed value stays. confirm resolves to the result of work, or to
// null if the dialog was left.
//
// A field is {type, mode, value, reasoned, read(typed, reason), hint(typed)}. mode is its inputmode. If reasoned is true, the
// dialog asks for a reason as well. read may throw a Mistake. hint returns the key of a word and the values of its places, or
// nothing.
export function confirm(name, { places, field, grave = false, work }) {
  const yes = at("confirm-yes");
  say(at("confirm-title"), `ask_${name}`, places);
  say(at("confirm-more"), `ask_${name}_more`, places);
  say(yes, `ask_${name}_yes`);
  yes.className = grave ? "second stop" : "main";
  clear();
  show(at("confirm-field"), field);
  if (field) {
    say(at("confirm-label"), `ask_${name}_field`);
    input.type = field.type;
    input.inputMode = field.mode ?? "";
    input.value = field.value;
    hint(field);
  }
  show(at("confirm-why"), field?.reasoned);
  if (field?.reasoned) {
    say(at("confirm-reason-label"), `ask_${name}_reason`);
    reasonInput.value = "";
  }
  let busy = false;
  return converse(at("confirm"), (end, signal) => {
    (field ? input : at("confirm-no")).focus();
    input.addEventListener("input", () => hint(field), { signal });
    const look = setInterval(hint, period, field); // the hint depends on data that may change
    signal.addEventListener("abort", () => clearInterval(look));
    at("confirm-form").addEventListener("submit", async (event) => {
      event.preventDefault();
      if (busy) {
        return;
      }
      clear();
      busy = true;
      yes.setAttribute("aria-busy", "true");
      try {
        const typed = field?.read(input.value, reasonInput.value);
        end(await loggedIn(() => work(typed)));
      } catch (refusal) {
        complain(field, refusal);
      } finally {
        busy = false;
        yes.removeAttribute("aria-busy");
      }
    }, { signal });
  }, () => busy);
}

function clear() {
  hush(error);
  input.removeAttribute("aria-invalid");
}

function complain(field, refusal) {
  if (refusal instanceof Mistake) {
    say(error, refusal.word, refusal.places);
  } else {
    tell(error, refusal);
  }
  if (field && (refusal instanceof Mistake || refusal.field)) {
    input.setAttribute("aria-invalid", "true");
    input.focus();
  }
}

function hint(field) {
  const said = field?.hint?.(input.value);
  show(at("confirm-hint"), said);
  if (said) {
    say(at("confirm-hint"), ...said);
  }
}
