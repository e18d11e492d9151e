// The way to the server: one function that asks, one kind of error, and who is logged in.

import { language } from "./i18n.js";
import { lasting } from "./store.js";

// patience is how long an answer may take. The server gives up after ten seconds.
const patience = 15_000;

// changed fires "session" when somebody logs in or out, here or in another tab.
export const changed = new EventTarget();

// Refusal is any answer that is not a yes. Its code is the server's, or "network": then nobody knows whether the
// server has heard us.
export class Refusal extends Error {
  constructor(code, detail = "", status = 0, wait = 0) {
    super(`${code} ${detail}`);
    Object.assign(this, { code, detail, status, wait });
  }
}

// look reads what everybody may see, without saying who asks, so that any cache may answer.
export const look = async (path) => (await call("GET", path, { who: null })).data;

// call asks the API. It gives the answer's data and the seconds to wait before asking further; else it throws a Refusal.
export async function call(method, path, { body, headers = {}, who = session() } = {}) {
  const answer = await send(method, path, {
    "Accept-Language": language(), // of the page, which may not be the browser's
    ...(who && { Authorization: `Bearer ${who.token}` }),
    ...(body && { "Content-Type": "application/json" }),
    ...headers,
  }, body);
  const wait = Number(answer.headers.get("Retry-After")) || 0;
  const data = await answer.json().catch(() => null);
  if (answer.ok && data) {
    return { data, wait };
  }
  if (data?.code === "unauthenticated" && who) {
    setSession(null);
  }
  throw new Refusal(data?.code ?? (answer.ok ? "network" : "unavailable"), data?.detail, answer.status, wait);
}

async function send(method, path, headers, body) {
  try {
    return await fetch(`/api/v1${path}`, {
      method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(patience),
    });
  } catch {
    throw new Refusal("network");
  }
}

// session is who is logged in: {id, name, token}, or null. When it is over the server says so: its clock decides.
export const session = () => lasting.read("session");

// setSession keeps what the server said of a log-in; null logs out.
export function setSession(said) {
  if (said) {
    lasting.write("session", { id: said.user.id, name: said.user.name, token: said.token });
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
