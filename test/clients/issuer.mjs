// An issuer by oidc-provider, the OpenID Certified server for Node: node issuer.mjs PORT REDIRECT_URL. As it does by itself, it
// keeps the claims of a scope out of ID tokens. It has a key for encryption and one that is not RSA beside that for signatures.

import { generateKeyPairSync } from "node:crypto";
import Provider from "oidc-provider";

const [port, redirect] = process.argv.slice(2);
const key = (type, options, more) => ({ ...generateKeyPairSync(type, options).privateKey.export({ format: "jwk" }), ...more });
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{ client_id: "flashsale", client_secret: "a secret: with/odd+characters %", redirect_uris: [redirect] }],
  claims: { openid: ["sub"], profile: ["name", "preferred_username"], email: ["email", "email_verified"], groups: ["groups"] },
  scopes: ["openid", "profile", "email", "groups"],
  features: { encryption: { enabled: true } },
  jwks: {
    keys: [
      key("x25519", {}, { use: "enc", alg: "ECDH-ES" }),
      key("ed25519", {}, { use: "sig", alg: "EdDSA" }),
      key("rsa", { modulusLength: 2048 }, { use: "sig", alg: "RS256" }),
    ],
  },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: `${id} of the shop`, email: `${id}@Shop.example`, email_verified: true, groups: id === "olga" ? ["bosses"] : [] }),
  }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
