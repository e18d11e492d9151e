"""Checks a draw.json by docs/fairness.md alone: commitment, root, seed, and the winners of a draw.

Of a beacon it checks that the randomness is the SHA-256 of the signature and that the seed follows from it. It does not
check the BLS signature, for which Python has no standard library: flashsale verify-draw does.
"""

import hashlib
import hmac
import json
import sys


def sha(data):
    return hashlib.sha256(data).digest()


def rank(seed, n, number):
    if number >= n or n == 1:
        return number
    half = ((n - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    x = number
    while True:
        left, right = x >> half, x & mask
        for i in range(8):
            f = int.from_bytes(sha(seed + bytes([i]) + right.to_bytes(8, "big"))[:8], "big") & mask
            left, right = right, left ^ f
        x = left << half | right
        if x < n:
            return x


def root(leaves):
    if not leaves:
        return sha(b"")
    if len(leaves) == 1:
        return leaves[0]
    k = 1 << ((len(leaves) - 1).bit_length() - 1)
    return sha(b"\x01" + root(leaves[:k]) + root(leaves[k:]))


def winners(doc, seed):
    by_rank = {rank(seed, doc["n"], number): number for number in range(doc["n"])}
    won, left = [], doc["units"]
    for r in range(doc["n"]):
        number = by_rank[r]
        if left > 0 and number not in doc["void"] and doc["quantities"][number] <= left:
            won.append(number)
            left -= doc["quantities"][number]
    return won


def check(doc):
    secret = bytes.fromhex(doc["secret"])
    leaves = [sha(b"\x00" + number.to_bytes(8, "big") + bytes.fromhex(tag)) for number, tag in enumerate(doc["tags"])]
    beacon = doc.get("beacon")
    randomness = bytes.fromhex(beacon["randomness"]) if beacon else b""
    seed = hmac.new(secret, root(leaves) + randomness, hashlib.sha256).digest()
    parts = {
        "n": len(leaves) == doc["n"],
        "commitment": sha(secret).hex() == doc["commitment"],
        "root": root(leaves).hex() == doc["root"],
        "beacon": beacon is None or sha(bytes.fromhex(beacon["signature"])) == randomness,
        "seed": doc["n"] == 0 or seed.hex() == doc["seed"],
    }
    if doc["mode"] == "draw":
        parts["winners"] = winners(doc, seed) == doc["winners"]
    return [part for part, right in parts.items() if not right]


with open(sys.argv[1], encoding="utf-8") as file:
    wrong = check(json.load(file))
print("wrong: " + ", ".join(wrong) if wrong else "everything agrees")
sys.exit(1 if wrong else 0)
