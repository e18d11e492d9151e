package ranks

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"flashsale/internal/beacon"
	"flashsale/test/kit/check"
)

const (
	documentation = "../../docs/fairness.md"
	vectorHeading = "## Test vectors\n\n"
)

// round1000 is a round of quicknet.
func round1000() *Beacon {
	signature := check.Must(hex.DecodeString("b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39"))
	key := check.Must(hex.DecodeString(beacon.Quicknet))
	return &Beacon{PublicKey: key, Round: 1000, Signature: signature, Randomness: check.Must(beacon.Verify(key, 1000, signature))}
}

// vectors computes the test vectors as docs/fairness.md has them.
func vectors() string {
	var out strings.Builder
	print := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	seeds := []Hash{{}, ascending(0)}

	print("`00..00` is 32 zero bytes. `00..1f`, `20..3f` and `40..5f` are 32 bytes that count up from the first.\n")
	print("### Ranks\n")
	print("| seed | n | ranks of the numbers 0, 1, 2 … |\n|---|---|---|")
	names := []string{"00..00", "00..1f"}
	for i, seed := range seeds {
		for _, n := range []int64{1, 2, 3, 5, 10} {
			list := make([]int64, n)
			for number := range list {
				list[number] = Order{seed, n}.Rank(int64(number))
			}
			print("| `%s` | %d | %s |", names[i], n, strings.Trim(fmt.Sprint(list), "[]"))
		}
	}
	print("\n| seed | n | number | rank |\n|---|---|---|---|")
	for i, seed := range seeds {
		for _, n := range []int64{1000, 1<<20 + 1, 1 << 53} {
			for _, number := range []int64{0, 1, n / 2, n - 1, n} {
				print("| `%s` | %d | %d | %d |", names[i], n, number, Order{seed, n}.Rank(number))
			}
		}
	}
	order := Order{seeds[1], 10}
	half, x := 2, int64(0) // its first repetition ends outside 0 to 9
	print("\nThe first repetition for seed `%s`, n = %d and number = %d, with h = %d. The second, from this x, gives the rank %d:\n",
		names[1], order.N, x, half, order.Rank(x))
	print("| i | L | R | F(i, R) |\n|---|---|---|---|")
	left, right := uint64(x)>>half, uint64(x)&(1<<half-1)
	for i := range byte(rounds) {
		f := order.round(i, right, half)
		print("| %d | %d | %d | %d |", i, left, right, f)
		left, right = right, left^f
	}
	print("| end | %d | %d | x = %d |", left, right, left<<half|right)

	print("\n### Tags and trees\n")
	print("The key of the sale is `20..3f`, and the users are `user-0`, `user-1` and so on.\n")
	print("| number | tag | hash of the entry |\n|---|---|---|")
	tags := make([]Hash, 7)
	key := ascending(0x20)
	for i := range tags {
		tags[i] = Tag(key[:], fmt.Sprint("user-", i))
		print("| %d | `%s` | `%s` |", i, tags[i], leaf(int64(i), tags[i]))
	}
	print("\n| n | root |\n|---|---|")
	for _, n := range []int{0, 1, 2, 3, 7} {
		print("| %d | `%s` |", n, RootOf(tags[:n]))
	}
	for _, number := range []int64{2, 6} {
		print("\nThe path of entry %d of 7:\n", number)
		for _, hash := range Path(tags, number) {
			print("- `%s`", hash)
		}
	}

	print("\n### Commitment and seed\n")
	random := round1000().Randomness
	print("The secret is `40..5f`, the root that of 7 entries, the randomness that of round 1000 of quicknet, `%s`.\n", random)
	print("| | |\n|---|---|\n| commitment | `%s` |", Commitment(secret))
	print("| seed | `%s` |\n| seed with the beacon | `%s` |", Seed(secret, RootOf(tags), nil), Seed(secret, RootOf(tags), random[:]))

	print("\n### A document\n\nA draw of 3 units with these 7 entries and the beacon, which `flashsale verify-draw` accepts.\n")
	doc := draw(tags, []int64{1, 2, 1, 3, 1, 2, 1}, []int64{3}, 3)
	doc.Beacon = round1000()
	*doc.Seed = Seed(secret, doc.Root, random[:])
	doc.Winners = Winners(doc.Order(), *doc.Units, doc.Quantities, doc.Void)
	var pretty bytes.Buffer
	check.Done(json.Indent(&pretty, encode(doc), "", "  "))
	print("```json\n%s```", pretty.String())
	return out.String()
}

// The test vectors in the document are what the code computes. Version 1 is frozen: if this test fails after a change of the
// code, the code is wrong.
func TestVectors(t *testing.T) {
	text := string(check.Must(os.ReadFile(documentation)))
	_, got, found := strings.Cut(text, vectorHeading)
	if want := vectors(); !found || got != want {
		t.Errorf("%s should end with\n%s%s", documentation, vectorHeading, want)
	}
}

// The example in the document is one that verify-draw accepts.
func TestTheExample(t *testing.T) {
	_, text, _ := strings.Cut(string(check.Must(os.ReadFile(documentation))), "```json\n")
	text, _, _ = strings.Cut(text, "```")
	check.NoError(t, Check(check.Must(Read(strings.NewReader(text))), check.Must(hex.DecodeString(beacon.Quicknet))))
	if !strings.Contains(string(check.Must(os.ReadFile(documentation))), beacon.Quicknet) {
		t.Error("the document has another public key of quicknet")
	}
}
