// Signs the notice on standard input as Stripe does, by Stripe's own library: node sign.mjs SECRET. It prints the header.

import { text } from "node:stream/consumers";
import Stripe from "stripe";

const payload = await text(process.stdin);
process.stdout.write(new Stripe("sk_test_1").webhooks.generateTestHeaderString({ payload, secret: process.argv[2] }));
