// Verifies the message on standard input, by the library of Standard Webhooks: node verify.mjs SECRET HEADERS, which are JSON. It
// prints the types of the message's events.

import { text } from "node:stream/consumers";
import { Webhook } from "standardwebhooks";

const [secret, headers] = process.argv.slice(2);
const message = new Webhook(secret).verify(await text(process.stdin), JSON.parse(headers));
process.stdout.write(message.data.events.map(({ type }) => type).join(" "));
