package middleware

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTokenBucketTriesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newEngine(t, TokenBucket(2, 3, 0))
		steps := []struct {
			name  string
			pause time.Duration
			want  string
		}{
			{"the burst, 1st", 0, "ok"},
			{"the burst, 2nd", 0, "ok"},
			{"the burst, 3rd", 0, "ok"},
			{"past the burst", 0, "rate_limited after 500ms"},
			{"a refusal costs no token", 0, "rate_limited after 500ms"},
			{"half a token", 250 * time.Millisecond, "rate_limited after 250ms"},
			{"a token", 250 * time.Millisecond, "ok"},
			{"and no more", 0, "rate_limited after 500ms"},
		}
		for _, step := range steps {
			<-time.After(step.pause)
			if got := serve(engine, newRequest(t)).Body.String(); got != step.want {
				t.Errorf("%s: %q, want %q", step.name, got, step.want)
			}
		}
	})
}

func TestTokenBucketWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, wait = 10, 350 * time.Millisecond // so that rate*wait allows three to wait
		engine := newEngine(t, TokenBucket(rate, 1, wait))
		type answer struct {
			body  string
			after time.Duration
		}
		answers := make(chan answer, 100)
		start := time.Now()
		for range cap(answers) {
			go func() {
				body := serve(engine, newRequest(t)).Body.String()
				answers <- answer{body, time.Since(start)}
			}()
		}

		var passed []time.Duration
		for range cap(answers) {
			a := <-answers
			switch {
			case a.body == "ok":
				passed = append(passed, a.after)
			case a.after != 0:
				t.Errorf("%q only after %s", a.body, a.after)
			}
		}
		if len(passed) != 4 {
			t.Fatalf("passed after %v, want one at once and three that waited", passed)
		}
		for i, after := range passed {
			if want := time.Duration(i) * 100 * time.Millisecond; after != want {
				t.Errorf("number %d passed after %s, want %s", i, after, want)
			}
		}
	})
}

func TestTokenBucketClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newEngine(t, TokenBucket(1, 1, 10*time.Second))
		start := time.Now()
		serve(engine, newRequest(t))

		ctx, leave := context.WithCancel(t.Context())
		leaver := newRequest(t).WithContext(ctx)
		left := make(chan string)
		go func() { left <- serve(engine, leaver).Body.String() }()
		synctest.Wait()
		leave()
		if got, want := <-left, "failed: context canceled"; got != want {
			t.Errorf("%q, want %q", got, want)
		}

		if got := serve(engine, newRequest(t)).Body.String(); got != "ok" {
			t.Errorf("the next one: %q", got)
		}
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("the next one waited for %s; the token of the one who left was not given back", waited)
		}
	})
}
