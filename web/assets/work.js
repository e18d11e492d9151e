// The work that a sale may ask of its entrants, so that many accounts cost a bot much time: challenges in the format of
// ALTCHA, https://altcha.org/docs/v2/proof-of-work/. Browsers have crypto.subtle only on pages from https or localhost.

import { Refusal } from "./api.js";

// batch is how many hashes are asked for at once. A larger batch is no faster, and the page can react between two batches.
const batch = 500;

// solve resolves to the solution of a challenge. It throws a Refusal if this browser can't compute hashes on this page, or if no
// number up to maxnumber is a solution.
export async function solve({ algorithm, challenge, maxnumber, salt, signature }) {
  if (!globalThis.crypto?.subtle) {
    throw new Refusal("work_needs_https");
  }
  const encoder = new TextEncoder();
  const wanted = challenge.match(/../g).map((digits) => parseInt(digits, 16));
  for (let from = 0; from <= maxnumber; from += batch) {
    const sums = await Promise.all(Array.from({ length: batch }, (_, i) => crypto.subtle.digest(algorithm, encoder.encode(salt + (from + i)))));
    const found = sums.findIndex((sum) => new Uint8Array(sum).every((byte, i) => byte === wanted[i]));
    if (found >= 0) {
      return btoa(JSON.stringify({ algorithm, challenge, number: from + found, salt, signature }));
    }
  }
  throw new Refusal("work_required");
}
