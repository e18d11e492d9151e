// A form for something new, or for the changes of something that exists. Its fields have the names of the API, so that the reason
// of a refusal can be shown beside the field that the refusal is about.

import { call } from "./api.js";
import { loggedIn, tell } from "./desk.js";
import { at, enable, enabled, show } from "./dom.js";
import { Mistake, zone } from "./fields.js";
import { hush, reason, say } from "./i18n.js";
import { newKey, passing } from "./store.js";

// formOf returns the form whose elements have ids with a prefix, as {open, drafted, keep}. scope names the thing to which
// something new is added, such as a campaign, so that what was typed is restored only in the form of the same thing. A copy is
// something new that begins with the values of an original.
//
// fields has for each field read(typed, values), which converts the typed text or throws a Mistake, and write(value, values), which
// formats a value. A field whose value depends on another field, such as an amount on its currency, has that field's name in unit. The values are those of the fields that are read before, or those that are shown. fields may change while the form is open. In the following, existing is what is changed, or null for something new.
// usual(existing) returns the values of something new, or the values of existing that the API leaves out. address(existing)
// returns the method and path to which the form is sent. words are the keys of {create, edit, send, save}. fits(name, existing)
// reports whether existing has a field. inCampaign(existing) reports whether the form is about a campaign or a sale of one.
// check(values, fine, existing) returns pairs of a name and a Mistake; fine(...names) reports whether these fields were read
// without a mistake. body(values) makes the body. The form calls began(typed, existing, original) with the restored values before
// it is shown.
export function formOf({
  prefix = "", scope = "", fields, usual, address, words, fits = () => true, inCampaign = (existing) => Boolean(existing?.campaign_id),
  check = () => [], body = (values) => values, began = () => {},
}) {
  const part = (name) => at(prefix + name);
  const form = part("form");
  const send = part("form-send"); // disabled while a request is on its way, so that a second click sends nothing
  let edited = null; // what is changed; null for something new
  let copied = null; // the original of what is new; null unless it is a copy
  let before = {}; // the values of the fields when the form was opened
  let onSaved = null;
  let opener = null; // the element that had the focus
  for (const option of form.querySelectorAll("option[data-say]")) { // an option can't have an element for each language
    say(option, option.dataset.say);
  }

  const draftOf = (existing, original) => `draft ${prefix}${scope}${existing?.id ?? (original ? `copy of ${original.id}` : "new")}`;

  // drafted returns, by field, what was typed and not sent: for existing, or for something new if that is null. It returns null
  // if there is nothing.
  const drafted = (existing, original) => passing.read(draftOf(existing, original));

  // open shows the form for existing, or for something new if that is null, which may be a copy of an original. It calls saved()
  // with what the server has made or changed. What was typed before a reload is restored.
  function open(existing, saved, original = null) {
    edited = existing;
    copied = original;
    onSaved = saved;
    opener = document.activeElement;
    const shown = { ...usual(existing), ...original, ...existing };
    const typed = drafted(existing, original) ?? {};
    began(typed, existing, original);
    before = {};
    for (const [name, { write }] of Object.entries(fields)) {
      before[name] = name in shown ? write(shown[name], shown) : "";
      part(name).value = typed[name] ?? before[name];
      complain(name);
    }
    sift();
    for (const rest of form.querySelectorAll("details")) {
      rest.open = Boolean(existing) || Object.keys(typed).some((name) => rest.contains(part(name)));
    }
    say(part("form-title"), existing ? words.edit : words.create);
    say(send, existing ? words.save : words.send);
    if (shown.starts_at) {
      say(part("zone"), "zone", zone(shown.starts_at));
    }
    hush(part("form-error"));
    show(form, true);
    form.querySelector(".field:not([hidden]) :is(input, textarea, select)").focus();
  }

  // names returns the names of the fields that are shown: some fields can't be changed in something that exists, and some act only
  // in some modes.
  const names = () => Object.keys(fields).filter((name) => acts(name) && (!edited || (!part(name).closest(".fixed") && fits(name, edited))));

  // acts reports whether a field acts in the mode that is chosen. The server has written into the page which modes these are.
  function acts(name) {
    const { always, withList, inCampaign: ofCampaigns } = part(name).closest(".field").dataset;
    const among = (modes) => modes.match(/\w+/g)?.includes(part("mode").value);
    return always === undefined || among(always) || (among(withList) && fields.waiting_list && part("waiting_list").value === "true") ||
      (among(ofCampaigns) && inCampaign(edited));
  }

  function sift() {
    const shown = names();
    Object.keys(fields).forEach((name) => show(part(name).closest(".field"), shown.includes(name)));
  }

  const differs = (name) => name in fields && part(name).value !== before[name];
  const changed = () => names().filter((name) => differs(name) || differs(fields[name].unit));

  function close() {
    passing.remove(draftOf(edited, copied));
    passing.remove("asked");
    show(form, false);
    opener.focus();
  }

  // read returns the body to send. If there are mistakes, it shows each beside its field and returns null.
  function read() {
    const values = { ...usual(edited), ...edited };
    const mistakes = new Map();
    for (const name of names()) {
      try {
        values[name] = fields[name].read(part(name).value, values);
      } catch (mistake) {
        if (!(mistake instanceof Mistake)) {
          throw mistake;
        }
        mistakes.set(name, mistake);
      }
    }
    for (const [name, mistake] of check(values, (...among) => !among.some((name) => mistakes.has(name)), edited)) {
      mistakes.set(name, mistake);
    }
    for (const name of Object.keys(fields)) {
      const mistake = mistakes.get(name);
      complain(name, mistake && ((error) => say(error, mistake.word, mistake.places)));
    }
    if (mistakes.size > 0) {
      form.querySelector("[aria-invalid]").focus();
      return null;
    }
    return body(Object.fromEntries((edited ? changed() : names()).map((name) => [name, values[name]])));
  }

  // complain has write show a reason beside a field. Without write, it removes the reason that is shown there.
  function complain(name, write) {
    hush(part(`${name}-error`));
    part(name).removeAttribute("aria-invalid");
    if (write) {
      write(part(`${name}-error`));
      part(name).setAttribute("aria-invalid", "true");
      part(name).closest("details")?.setAttribute("open", "");
    }
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    hush(part("form-error"));
    const sent = enabled(send) ? read() : null;
    if (!sent) {
      return;
    }
    if (Object.keys(sent).length === 0) {
      close(); // nothing was changed
      return;
    }
    enable(send, false);
    send.setAttribute("aria-busy", "true");
    try {
      const [method, path] = address(edited);
      const headers = edited ? {} : { "Idempotency-Key": keyFor(JSON.stringify(sent)) };
      const { data } = await loggedIn(() => call(method, path, { body: sent, headers }));
      close();
      onSaved(data);
    } catch (refusal) {
      if (names().includes(refusal.field)) {
        complain(refusal.field, (error) => reason(error, refusal));
        part(refusal.field).focus();
      } else {
        tell(part("form-error"), refusal);
      }
    } finally {
      enable(send, true);
      send.removeAttribute("aria-busy");
    }
  });

  // keep stores what was typed or chosen, so that it survives a reload.
  const keep = () => passing.write(draftOf(edited, copied), Object.fromEntries(changed().map((name) => [name, part(name).value])));

  form.addEventListener("input", () => {
    sift();
    keep();
  });
  part("form-leave").addEventListener("click", () => enabled(send) && close());
  return { open, drafted, keep };
}

// keyFor returns the Idempotency-Key for a body. The same body gets the same key until another body is sent, so that a retry
// after a lost answer makes nothing twice.
export function keyFor(text) {
  const kept = passing.read("asked");
  const asked = kept?.text === text ? kept : { text, key: newKey() };
  passing.write("asked", asked);
  return asked.key;
}
