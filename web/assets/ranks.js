// The public order of a sale's entries, and what proves it, so that a buyer's page trusts no server: encoding version 1,
// which docs/fairness.md describes. Hashes, secrets and seeds are lower-case hex digits; numbers are up to 2^53. Browsers
// have crypto.subtle only on pages from https or localhost. Elsewhere every function here rejects.

const rounds = 8;
const leafPrefix = 0;
const nodePrefix = 1;

// rank resolves to the rank of an entry by its number. Entries from number n on came after the seal and keep their number.
export async function rank(seed, n, number) {
  if (number >= n || n === 1) {
    return number;
  }
  const half = Math.ceil((n - 1).toString(2).length / 2); // bits, at most 27, so that ^ and & are exact
  const size = 2 ** half;
  const input = new Uint8Array(41); // the seed, the round and 8 bytes for the right half
  const view = new DataView(input.buffer);
  input.set(bytes(seed));
  let left = Math.floor(number / size);
  let right = number % size;
  const outside = () => left > Math.floor(n / size) || (left === Math.floor(n / size) && right >= n % size);
  do {
    for (let round = 0; round < rounds; round++) {
      view.setUint8(32, round);
      view.setUint32(37, right);
      const sum = await sha256(input);
      [left, right] = [right, left ^ (new DataView(sum.buffer).getUint32(4) & (size - 1))];
    }
  } while (outside()); // left * size + right may be above 2^53 here
  return left * size + right;
}

// verifyInclusion resolves to whether an entry, by its number and tag, is one of the n entries under a root. path are the
// hashes beside the way up to the root, the lowest first.
export async function verifyInclusion(root, n, number, tag, path) {
  if (!(number >= 0 && number < n)) {
    return false;
  }
  const data = new DataView(new ArrayBuffer(8));
  data.setBigUint64(0, BigInt(number));
  let sum = await sha256([leafPrefix, ...new Uint8Array(data.buffer), ...bytes(tag)]);
  const rest = [...path];
  for (let last = n - 1; last > 0; last = Math.floor(last / 2), number = Math.floor(number / 2)) {
    if (number === last && number % 2 === 0) {
      continue; // nothing stands beside it on this level
    }
    if (rest.length === 0) {
      return false;
    }
    const beside = bytes(rest.shift());
    sum = await sha256(number % 2 === 1 ? [nodePrefix, ...beside, ...sum] : [nodePrefix, ...sum, ...beside]);
  }
  return rest.length === 0 && hex(sum) === root;
}

// seedOf resolves to the seed. randomness is that of the beacon's round, if there is a beacon.
export async function seedOf(secret, root, randomness = "") {
  const key = await crypto.subtle.importKey("raw", bytes(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return hex(new Uint8Array(await crypto.subtle.sign("HMAC", key, bytes(root + randomness))));
}

// commitmentOf resolves to the commitment to a secret.
export const commitmentOf = async (secret) => hex(await sha256(bytes(secret)));

const sha256 = async (data) => new Uint8Array(await crypto.subtle.digest("SHA-256", Uint8Array.from(data)));

const bytes = (text) => Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));

const hex = (data) => Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
