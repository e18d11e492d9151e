// The way to the server: one function that asks, one kind of error, and who is logged in.

import { language } from "./i18n.js";
import { lasting } from "./store.js";

// patience is how long an answer may take. The server gives up after ten seconds.
const patience = 15_000;

// changed fires "session" when somebody logs in or out, here or in another tab.
export const changed = new EventTarget();

// Refusal is any answer that is not a yes. Its code is the server's, or "network": then nobody knows whether the
// server has heard us. Its field is that of the input that it is about, if any.
export class Refusal extends Error {
  constructor(code, detail = "", status = 0, wait = 0, field = "") {
    super(`${code} ${detail}`);
    Object.assign(this, { code, detail, status, wait, field });
  }
}

// look reads what everybody may see, without saying who asks, so that any cache may answer.
export const look = async (path) => (await call("GET", path, { who: null })).data;

// call asks the API. It gives the answer's data and the seconds to wait before asking further; else it throws a Refusal.
export async function call(method, path, options) {
  const answer = await send(method, path, options);
  const data = await answer.json().catch(() => null);
  if (!data) {
    throw new Refusal("network");
  }
  return { data, wait: waitOf(answer) };
}

// send asks the API and gives the answer once its head is there; else it throws a Refusal. What is to be read for
// longer than patience brings a signal of its own.
export async function send(method, path, { body, headers = {}, who = session(), signal = AbortSignal.timeout(patience) } = {}) {
  const answer = await fetch(`/api/v1${path}`, {
    method,
    headers: {
      "Accept-Language": language(), // of the page, which may not be the browser's
      ...(who && { Authorization: `Bearer ${who.token}` }),
      ...(body && { "Content-Type": "application/json" }),
      ...headers,
    },
    body: body && JSON.stringify(body),
    signal,
  }).catch(() => { throw new Refusal("network"); });
  if (answer.ok) {
    return answer;
  }
  const data = await answer.json().catch(() => null);
  if (data?.code === "unauthenticated" && who) {
    setSession(null);
  }
  throw new Refusal(data?.code ?? "unavailable", data?.detail, answer.status, waitOf(answer), data?.field);
}

const waitOf = (answer) => Number(answer.headers.get("Retry-After")) || 0;

// session is who is logged in: {id, name, role, token}, or null. When it is over the server says so: its clock decides.
export const session = () => lasting.read("session");

// setSession keeps what the server said of a log-in; null logs out.
export function setSession(said) {
  if (said) {
    lasting.write("session", { id: said.user.id, name: said.user.name, role: said.user.role, token: said.token });
  } else {
    lasting.remove("session");
  }
  changed.dispatchEvent(new Event("session"));
}

addEventListener("storage", (event) => {
  if (event.key === "session") {
    changed.dispatchEvent(new Event("session"));
  }
});

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
