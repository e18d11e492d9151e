// Buying: an attempt is sent under one key until there is an answer. The server gives one answer for a key, so a lost
// answer, a reload and repeated clicks lead to the same order. This module changes no element of the page.

import { Refusal, call, pause, session } from "./api.js";
import { now } from "./clock.js";
import { newKey, passing } from "./store.js";

// tries is how many answers that decide nothing are taken before the buyer decides whether to go on.
const tries = 6;

// longestPause bounds the seconds between two requests while there is no connection.
const longestPause = 8;

// Codes of refusals that do not decide the attempt.
const fleeting = ["network", "rate_limited", "too_frequent", "unavailable", "internal"];

// punctual is how long after the start, in milliseconds, the server may still answer not_started: the clocks of its
// parts differ a little.
const punctual = 3000;

// lifetime is how long, in milliseconds, a reload may continue an attempt. Later, the buyer may not remember the click.
const lifetime = 10 * 60_000;

// The hidden paths by sale and user, as {path, until}, and the requests for them.
const paths = new Map();
const fetching = new Map();

const keyOf = (saleID) => `${saleID} ${session()?.id}`;

// fetchPath returns the hidden path of a sale, which it keeps while it is valid. Calls at the same time share one
// request.
export function fetchPath(saleID) {
  const key = keyOf(saleID);
  const known = paths.get(key);
  if (known && now() < known.until) {
    return known.path;
  }
  if (!fetching.has(key)) {
    fetching.set(key, call("POST", `/sales/${saleID}/path`)
      .then(({ data }) => {
        paths.set(key, { path: data.path, until: Date.parse(data.expires_at) });
        return data.path;
      })
      .finally(() => fetching.delete(key)));
  }
  return fetching.get(key);
}

const place = (saleID) => `attempt ${saleID}`;

// unanswered returns this user's attempt that has no answer yet, as {saleID, user, key, quantity, orderID, at}, or
// null.
export function unanswered(saleID) {
  const kept = passing.read(place(saleID));
  return kept && kept.user === session()?.id && now() < kept.at + lifetime ? kept : null;
}

// wish stores what the buyer has clicked on, as {id, quantity}, since a log-in at the shop's issuer leaves the page; null: nothing.
// wished returns it for the lifetime of an attempt.
export const wish = (asked) => passing.write("wish", asked && { ...asked, at: now() });

export function wished() {
  const asked = passing.read("wish");
  return asked && now() < asked.at + lifetime ? asked : null;
}

// begin stores an attempt before anything of it is sent.
export function begin(saleID, quantity) {
  const attempt = { saleID, user: session().id, key: newKey(), quantity, orderID: null, at: now() };
  passing.write(place(saleID), attempt);
  return attempt;
}

// patience returns a function that waits until a request may be sent again, and that throws the refusal when it is time to
// give up: after some answers, but without a connection only when lifetime is over. Then the wait also ends as soon as the browser
// is online. If the wait is a second or longer, it calls waiting(word, places) first.
export function patience(since, waiting) {
  let [left, missed] = [tries, 0];
  return async (refusal, seconds) => {
    const offline = refusal.code === "network";
    if (offline ? now() > since + lifetime : --left === 0) {
      throw refusal;
    }
    const wait = offline ? Math.min(longestPause, 2 ** missed++) : seconds;
    if (wait >= 1) {
      waiting(offline ? "offline_wait" : "holding_wait", { seconds: Math.ceil(wait) });
    }
    const online = new Promise((resolve) => { addEventListener("online", resolve, { once: true }); });
    await Promise.race([pause(wait * 1000 * (1 + Math.random() / 4)), ...(offline ? [online] : [])]);
  };
}

// finish sends an attempt until it is decided. It returns the order or throws the Refusal. For waiting see patience. If the Refusal
// does not decide the attempt, or the session has expired, the attempt can be finished later.
export async function finish(attempt, startsAt, waiting) {
  const rest = patience(attempt.at, waiting);
  for (;;) {
    try {
      if (session()?.id !== attempt.user) {
        throw new Refusal("unauthenticated"); // logged out meanwhile
      }
      const order = await (attempt.orderID ? follow(attempt) : send(attempt));
      if (order.status === "rejected") {
        throw new Refusal(order.reason);
      }
      passing.remove(place(attempt.saleID));
      return order;
    } catch (refusal) {
      const answered = refusal instanceof Refusal;
      const wait = answered ? secondsUntilNext(refusal, attempt, startsAt) : null;
      if (answered && wait === null && refusal.code !== "unauthenticated") {
        passing.remove(place(attempt.saleID));
      }
      if (wait === null) {
        throw refusal;
      }
      await rest(refusal, wait);
    }
  }
}

export const isFleeting = (refusal) => fleeting.includes(refusal.code);

// secondsUntilNext returns the seconds until an attempt may be sent again, or null if it must not be sent again now.
function secondsUntilNext(refusal, attempt, startsAt) {
  if (isFleeting(refusal)) {
    return refusal.wait || 1;
  }
  if (refusal.code === "not_started" && now() >= startsAt && now() < startsAt + punctual) {
    return 0.3;
  }
  if (refusal.code === "bad_path" && !attempt.pathRenewed) {
    attempt.pathRenewed = true;
    paths.delete(keyOf(attempt.saleID));
    return 0;
  }
  return null;
}

async function send(attempt) {
  const path = await fetchPath(attempt.saleID);
  const { data: order, wait } = await call("POST", `/sales/${attempt.saleID}/${path}/orders`, {
    body: { quantity: attempt.quantity }, headers: { "Idempotency-Key": attempt.key },
  });
  if (order.status !== "queued") {
    return order;
  }
  attempt.orderID = order.id;
  attempt.wait = wait || 1;
  passing.write(place(attempt.saleID), attempt);
  return follow(attempt);
}

// follow reads a queued order again and again until it is no longer queued.
async function follow(attempt) {
  for (;;) {
    const { data: order } = await call("GET", `/orders/${attempt.orderID}`);
    if (order.status !== "queued") {
      return order;
    }
    await pause(attempt.wait * 1000);
  }
}
