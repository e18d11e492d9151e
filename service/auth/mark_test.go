package auth

import "testing"

// Two instances have the same mark exactly if their secrets are the same.
func TestMarks(t *testing.T) {
	key, secret, payment := []byte("key"), []byte("secret"), []byte("payment")
	mark := Mark(key, secret, payment)
	if mark != Mark(key, secret, payment) || len(mark) != 16 {
		t.Errorf("the mark %q", mark)
	}
	for _, other := range []string{
		Mark([]byte("other"), secret, payment), Mark(key, payment, payment), Mark(key, secret, secret),
		Mark(key, payment, secret),
		Mark(key, []byte("secretp"), []byte("ayment")),
	} {
		if other == mark {
			t.Error("other secrets have the same mark")
		}
	}
}
