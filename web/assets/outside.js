// The log-in at the shop's issuer, by an authorization code with PKCE. The verifier stays in this tab, so that a code alone
// is of no use to whoever sees it.

import { look } from "./api.js";
import { leave } from "./go.js";
import { passing } from "./store.js";

const encoded = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = () => encoded(crypto.getRandomValues(new Uint8Array(32)));

// depart leaves for the issuer's log-in. After that, the page /login returns the browser to the present page.
export async function depart() {
  const { issuer } = await look("/login");
  const [verifier, state, nonce] = [random(), random(), random()];
  passing.write("login", { verifier, state, nonce, back: location.href });
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const url = new URL(issuer.authorization_url);
  for (const [name, value] of Object.entries({
    response_type: "code", client_id: issuer.client_id, redirect_uri: issuer.redirect_url, scope: issuer.scope,
    code_challenge: encoded(new Uint8Array(digest)), code_challenge_method: "S256", state, nonce,
  })) {
    url.searchParams.set(name, value);
  }
  leave(url);
}
