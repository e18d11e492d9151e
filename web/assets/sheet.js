// A new campaign from a sheet in CSV. The server reads the sheet.

import { call } from "./api.js";
import { loggedIn, tell } from "./desk.js";
import { at, show } from "./dom.js";
import { keyFor } from "./form.js";
import { hush, say } from "./i18n.js";
import { passing } from "./store.js";

const form = at("sheet-form");
const file = at("sheet-file");
const error = at("sheet-error");
const send = at("sheet-send");

// sheet makes a button open the form. It calls made(campaign) with the campaign that the server has made.
export function sheet(button, made) {
  button.addEventListener("click", () => {
    hush(error);
    show(form, true);
    file.focus();
  });
  at("sheet-leave").addEventListener("click", () => {
    show(form, false);
    button.focus();
  });
  file.addEventListener("change", () => complain(null));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (send.getAttribute("aria-busy") === "true") {
      return;
    }
    complain(null);
    const [chosen] = file.files;
    if (!chosen) {
      complain(() => say(error, "wrong_file"));
      return;
    }
    send.setAttribute("aria-busy", "true");
    try {
      const body = textOf(await chosen.arrayBuffer());
      const headers = { "Content-Type": "text/csv", "Idempotency-Key": keyFor(body) };
      const { data } = await loggedIn(() => call("POST", "/admin/campaigns", { body, headers }));
      passing.remove("asked");
      made(data);
    } catch (refusal) {
      complain(() => tell(error, refusal));
    } finally {
      send.removeAttribute("aria-busy");
    }
  });
}

// textOf decodes a file in UTF-8, or else in GB 18030, in which spreadsheets write CSV on Chinese systems.
function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("gb18030").decode(bytes);
  }
}

function complain(write) {
  hush(error);
  file.removeAttribute("aria-invalid");
  if (write) {
    write();
    file.setAttribute("aria-invalid", "true");
    file.focus();
  }
}
