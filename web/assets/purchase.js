// Buying: an attempt is asked for under one key until there is an answer. The server gives one key one answer, so that
// a lost answer, a reload and an impatient buyer all meet at the same order. No element of the page is touched here.

import { Refusal, call, pause, session } from "./api.js";
import { now } from "./clock.js";
import { newKey, passing } from "./store.js";

// tries bounds how often an attempt is asked for before the buyer decides.
const tries = 6;

// Refusals that say nothing of the attempt itself.
const fleeting = ["network", "rate_limited", "too_frequent", "unavailable", "internal"];

// punctual is how long after the start the server may still say that it hasn't come: its parts differ a little.
const punctual = 3000;

// lifetime is for how long a reload takes an attempt up again: later, nobody remembers the click.
const lifetime = 10 * 60_000;

// The hidden paths of this sale by user: {path, until}.
const paths = new Map();
let fetching = null;

// fetchPath gets the hidden path of a sale, once for all who ask meanwhile.
export function fetchPath(saleID) {
  const id = session()?.id;
  const known = paths.get(id);
  if (known && now() < known.until) {
    return known.path;
  }
  fetching ??= call("POST", `/sales/${saleID}/path`)
    .then(({ data }) => {
      paths.set(id, { path: data.path, until: Date.parse(data.expires_at) });
      return data.path;
    })
    .finally(() => { fetching = null; });
  return fetching;
}

const place = (saleID) => `attempt ${saleID}`;

// unanswered is this user's attempt that has no answer yet: {saleID, user, key, quantity, orderID, at}, or null.
export function unanswered(saleID) {
  const kept = passing.read(place(saleID));
  return kept && kept.user === session()?.id && now() < kept.at + lifetime ? kept : null;
}

// begin notes an attempt before anything of it is sent.
export function begin(saleID, quantity) {
  const attempt = { saleID, user: session().id, key: newKey(), quantity, orderID: null, at: now() };
  passing.write(place(saleID), attempt);
  return attempt;
}

// finish brings an attempt to its end: it gives the order, or throws the Refusal. waiting(seconds) is called when the
// server wants us to wait. A fleeting Refusal, or a log-in that is over, leaves the attempt to be finished later.
export async function finish(attempt, startsAt, waiting) {
  for (let left = tries; ; left--) {
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
      if (wait === null || left === 1) {
        throw refusal;
      }
      if (wait >= 1) {
        waiting(Math.ceil(wait));
      }
      await pause(wait * 1000 * (1 + Math.random() / 4));
    }
  }
}

export const isFleeting = (refusal) => fleeting.includes(refusal.code);

// secondsUntilNext says when an attempt may be asked for again, null if the refusal is its answer.
function secondsUntilNext(refusal, attempt, startsAt) {
  if (isFleeting(refusal)) {
    return refusal.wait || 1;
  }
  if (refusal.code === "not_started" && now() >= startsAt && now() < startsAt + punctual) {
    return 0.3;
  }
  if (refusal.code === "bad_path" && !attempt.pathRenewed) {
    attempt.pathRenewed = true;
    paths.delete(attempt.user);
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

// follow asks for a queued order until it isn't.
async function follow(attempt) {
  for (;;) {
    const { data: order } = await call("GET", `/orders/${attempt.orderID}`);
    if (order.status !== "queued") {
      return order;
    }
    await pause(attempt.wait * 1000);
  }
}
