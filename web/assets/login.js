// The page to which the shop's issuer sends a browser back: it exchanges the code and returns to where the log-in began.

import "./page.js";
import { call, pause, setSession } from "./api.js";
import { at, show } from "./dom.js";
import { comeBack, own } from "./go.js";
import { reason, say } from "./i18n.js";
import { passing } from "./store.js";

const said = new URLSearchParams(location.search);
const begun = passing.read("login");
passing.remove("login");
history.replaceState(null, "", location.pathname); // keeps the code, which works once, out of the history

// mostTries bounds how often a code is sent. It is valid for minutes.
const mostTries = 20;

// exchange sends the code, and sends it again if the server refuses because too many log in at once: such a request has not used
// the code.
async function exchange(body) {
  for (let tries = 1; ; tries++) {
    try {
      return (await call("POST", "/sessions/code", { body, who: null })).data;
    } catch (refusal) {
      if (refusal.code !== "rate_limited" || tries === mostTries) {
        throw refusal;
      }
      await pause(1000 * (refusal.wait + Math.random())); // spread, so that not all come again at once
    }
  }
}

async function finish() {
  if (!begun || said.get("state") !== begun.state || !said.get("code")) {
    say(at("login-why"), said.get("error") === "access_denied" ? "login_declined" : "login_lost");
    return false;
  }
  try {
    const body = { code: said.get("code"), verifier: begun.verifier, nonce: begun.nonce };
    setSession(await exchange(body));
    return true;
  } catch (refusal) {
    const why = { unauthenticated: "login_lost", forbidden: "login_not_accepted" }[refusal.code];
    if (why) {
      say(at("login-why"), why);
    } else {
      reason(at("login-why"), refusal);
    }
    return false;
  }
}

if (await finish()) {
  comeBack(begun.back);
} else {
  show(at("login-waits"), false);
  show(at("login-failed"), true);
  at("login-back").href = own(begun?.back ?? "/");
}
