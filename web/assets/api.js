// Requests to the API, their one kind of error, and the session.

import { language } from "./i18n.js";
import { lasting } from "./store.js";

// patience is how long an answer may take, in milliseconds. The server gives up after ten seconds.
const patience = 15_000;

// address returns the URL of a path of the engine, from which this module came: a shop may have it on a page of its own.
export const address = (path) => new URL(path, import.meta.url).href;

// changed fires "session" when somebody logs in or out, here or in another tab.
export const changed = new EventTarget();

// Refusal is any answer that is not a success, or the lack of an answer. code is the server's code; "unavailable" if the answer
// has none; or "network" if no whole answer came, so that the server may have received the request or not. Some modules make a
// Refusal with a code themselves. field is the input that the refusal is about, if any.
export class Refusal extends Error {
  constructor(code, detail = "", status = 0, wait = 0, field = "") {
    super(`${code} ${detail}`);
    Object.assign(this, { code, detail, status, wait, field });
  }
}

// look reads public data. It sends no token, so that any cache may answer.
export const look = async (path) => (await call("GET", path, { who: null })).data;

// call sends a request to the API. It returns the data of the answer and the seconds of Retry-After, or throws a
// Refusal.
export async function call(method, path, options) {
  const answer = await send(method, path, options);
  const data = await answer.json().catch(() => null);
  if (!data) {
    throw new Refusal("network");
  }
  return { data, wait: waitOf(answer) };
}

// send sends a request to the API, with a text or an object as its body. It returns the response when its headers have arrived,
// or throws a Refusal. A caller that needs longer than patience to read the response passes a signal of its own.
export async function send(method, path, { body, headers = {}, who = session(), signal = AbortSignal.timeout(patience) } = {}) {
  const answer = await fetch(address(`/api/v1${path}`), {
    method,
    headers: {
      "Accept-Language": language(), // the page's, which may differ from the browser's
      ...(who && { Authorization: `Bearer ${who.token}` }),
      ...(body && { "Content-Type": "application/json" }),
      ...headers,
    },
    body: typeof body === "string" ? body : body && JSON.stringify(body),
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

let given = null; // the session of useToken, which is not stored
let refused = ""; // the last token of useToken that the server has refused

// session returns the user who is logged in, as {id, name, role, token}, or null. The token may have expired: only the server,
// whose clock decides, can tell.
export const session = () => given ?? lasting.read("session");

// useToken logs in by a token that a page of the shop has, until the page is left. An empty token logs out. The id only tells one
// user of this browser from another.
export function useToken(token) {
  if (token !== refused && (token || undefined) !== given?.token) {
    given = token ? { id: subjectOf(token), token } : null;
    changed.dispatchEvent(new Event("session"));
  }
}

function subjectOf(token) {
  try {
    return JSON.parse(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/"))).sub;
  } catch {
    return ""; // the server will refuse the token
  }
}

// setSession stores the answer to a log-in; null logs out.
export function setSession(said) {
  [refused, given] = [given?.token ?? refused, null];
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
