#!/usr/bin/env bash
# ApacheBench against a running server, with the line that articles about such systems use: ab -n 10000 -c 100.
#
#   test/load/ab.sh read PAGE        a sale as JSON, from memory
#   test/load/ab.sh buy PAGE TOKEN   purchases of one buyer; `flashsale tokens` prints tokens
#   test/load/ab.sh demo PAGE        purchases of an account that is made for it
#
# PAGE is the address of a sale's page, which `go run .` prints: http://127.0.0.1:8080/sales/E4OFUH3WQZGZCWAR.
# REQUESTS and CONCURRENCY in the environment set others than 10000 and 100. What the figures mean: docs/loadtest.md.
set -euo pipefail

# -l: answers of other lengths than the first are no failures.
load() { ab -l -n "${REQUESTS:-10000}" -c "${CONCURRENCY:-100}" "$@"; }
ask() { curl --silent --show-error --fail-with-body -H 'Content-Type: application/json' "$@"; }
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }

# buy has one buyer ask for their hidden path and buy by it. There is no Idempotency-Key: ab would send the same one
# each time, and the answer would be the same order.
buy() {
	local auth="Authorization: Bearer $1" path
	path=$(ask -X POST -H "$auth" "$api/sales/$sale/path" | field path)
	body=$(mktemp) # ab asks how long the file is: of a pipe it would send nothing
	trap 'rm -f "$body"' EXIT
	echo '{"quantity":1}' >"$body"
	load -p "$body" -T application/json -H "$auth" "$api/sales/$sale/$path/orders"
	# ab counts refusals and keeps none: one request more shows what they say.
	echo
	echo 'One request more is answered with'
	curl --silent --include -H "$auth" -H 'Content-Type: application/json' -d "@$body" "$api/sales/$sale/$path/orders"
	echo
}

page=${2-}
api=${page%/sales/*}/api/v1 sale=${page##*/sales/}
case "${1-} $# $page" in
"read 2 http"*/sales/?*) load "$api/sales/$sale" ;;
"buy 3 http"*/sales/?*) buy "$3" ;;
"demo 2 http"*/sales/?*)
	name=ab-$(date +%s)-$$
	buy "$(ask -d "{\"name\":\"$name\",\"password\":\"$name\"}" "$api/users" | field token)"
	;;
*)
	sed -n '4,6s/^# *//p' "$0" >&2
	exit 2
	;;
esac
