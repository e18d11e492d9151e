package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// problemOf sends a request through Problems to a handler. It returns the answer, its body as a problem, and the log.
func problemOf(t *testing.T, handler gin.HandlerFunc, r *http.Request) (*httptest.ResponseRecorder, map[string]any, string) {
	t.Helper()
	var out bytes.Buffer
	engine := gin.New()
	engine.Use(middleware.RequestID(), Problems(slog.New(slog.NewJSONHandler(&out, nil))))
	engine.GET("/sales/:sale/:path", handler)
	w := httptest.NewRecorder()
	engine.ServeHTTP(w, r)
	return w, readProblem(t, w), out.String()
}

// readProblem checks what all problems have in common. It returns nil if the body is not a problem.
func readProblem(t *testing.T, w *httptest.ResponseRecorder) (got map[string]any) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		return nil
	}
	want := []string{"code", "detail", "request_id", "status", "title", "type"}
	isField := func(key string) bool { return key == "field" }
	check.Same(t, "members", slices.DeleteFunc(slices.Sorted(maps.Keys(got)), isField), want)
	check.Same(t, "status in the body", got["status"], any(float64(w.Code)))
	check.Same(t, "type", got["type"], any(fmt.Sprintf("/problems/%v", got["code"])))
	sameHeader(t, "problem", w.Header(), map[string]string{
		"Content-Type": problemJS, "Vary": "Accept-Language", "Cache-Control": "no-store",
	})
	return got
}

func problemRequest(t *testing.T, headers ...string) *http.Request {
	t.Helper()
	return (&shop{TB: t}).request(http.MethodGet, "/sales/S1/secretpath", "", append(headers, "X-Request-ID", "r-1")...)
}

func refusing(r middleware.Refusal) gin.HandlerFunc {
	return func(c *gin.Context) { middleware.Refuse(c, r) }
}

// declared reads the values of a type's constants out of a source file.
func declared[T ~string](path, kind string) (list []T) {
	ast.Inspect(check.Must(parser.ParseFile(token.NewFileSet(), path, nil, 0)), func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if spec.Type == nil || types.ExprString(spec.Type) != kind {
			return false
		}
		for _, value := range spec.Values {
			list = append(list, T(check.Must(strconv.Unquote(value.(*ast.BasicLit).Value))))
		}
		return false
	})
	return list
}

// Every verdict that a client may get has a problem, with the status that clients were promised, and texts.
func TestProblemsDescribeEveryVerdict(t *testing.T) {
	verdicts := append(declared[model.Verdict]("../model/verdict.go", "Verdict"), internalError, methodNotAllowed)
	verdicts = slices.DeleteFunc(verdicts, func(v model.Verdict) bool {
		return slices.Contains([]model.Verdict{model.Accepted, model.Queued, model.NoGate, model.Unsure}, v) // no problems; never an answer
	})
	slices.Sort(verdicts)
	check.Same(t, "verdicts", slices.Sorted(maps.Keys(problems)), verdicts)
	got := map[int][]model.Verdict{}
	for _, verdict := range verdicts {
		p := problems[verdict]
		got[p.Status] = append(got[p.Status], verdict)
		english, chinese := []string{p.Title[0], p.Detail[0]}, []string{p.Title[1], p.Detail[1]}
		if slices.Contains(english, "") || !isASCII(strings.Join(english, "")) || slices.ContainsFunc(chinese, isASCII) {
			t.Errorf("%s: a text is missing or in the wrong language: %q, %q", verdict, english, chinese)
		}
	}
	check.Same(t, "verdicts by status", got, map[int][]model.Verdict{
		400: {"bad_request"},
		401: {"bad_signature", "unauthenticated"},
		403: {"bad_path", "forbidden", "work_required"},
		404: {"not_found"},
		405: {"method_not_allowed"},
		409: {
			"amount_mismatch", "call_ended", "ended", "entered", "entries_closed", "failed", "lab_running", "limit_reached", "lost", "name_taken", "no_line", "not_cancellable",
			"not_payable", "not_refundable", "not_started", "not_your_turn", "paused", "payment_refused", "quota_changed", "refund_due", "sale_open", "sold_out", "started", "too_many",
		},
		413: {"too_large"},
		415: {"unsupported_media_type"},
		422: {"idempotency_mismatch"},
		429: {"rate_limited", "too_frequent"},
		500: {"internal"},
		503: {"unavailable"},
	})
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0
}

func TestRetryAfter(t *testing.T) {
	for after, want := range map[time.Duration]string{
		0: "1", -time.Minute: "1", time.Millisecond: "1", time.Second: "1", time.Second + 1: "2", 1200 * time.Millisecond: "2",
		time.Minute: "60", 1<<63 - 1: "9223372037",
	} {
		w, _, _ := problemOf(t, refusing(middleware.Refusal{Verdict: model.RateLimited, RetryAfter: after}), problemRequest(t))
		sameHeader(t, after.String(), w.Header(), map[string]string{"Retry-After": want})
	}
}

// A failure is logged once, and its text is not in the answer.
func TestFailures(t *testing.T) {
	invalid := &service.Invalid{Field: "secret", Reason: missingField}
	type test struct {
		err    error
		status int
		code   string
		level  string
		retry  string
	}
	check.Each(t, map[string]test{
		"a store is away":     {fmt.Errorf("settle secret: %w", model.ErrUnavailable), 503, "unavailable", "WARN", "1"},
		"a deadline":          {fmt.Errorf("SELECT secret: %w", context.DeadlineExceeded), 503, "unavailable", "WARN", "1"},
		"a shutdown":          {fmt.Errorf("wait: secret: %w", context.Canceled), 503, "unavailable", "WARN", "1"},
		"another error":       {errors.New("SELECT secret FROM /var/lib"), 500, "internal", "ERROR", ""},
		"a lost race":         {fmt.Errorf("secret: %w", model.ErrLostRace), 500, "internal", "ERROR", ""},
		"an unknown verdict":  {middleware.Refusal{Verdict: "secret"}, 500, "internal", "ERROR", ""},
		"accepted as refusal": {middleware.Refusal{Verdict: model.Accepted, Invalid: invalid}, 500, "internal", "ERROR", ""},
	}, func(t *testing.T, tc test) {
		w, got, log := problemOf(t, func(c *gin.Context) { middleware.Fail(c, tc.err) }, problemRequest(t))
		check.Same(t, "status", w.Code, tc.status)
		check.Same(t, "code", got["code"], any(tc.code))
		check.Same(t, "the error is in the answer", strings.Contains(w.Body.String(), "secret"), false)
		check.Same(t, "the URL is in the log", strings.Contains(log, "secretpath"), false)
		sameHeader(t, "failure", w.Header(), map[string]string{"Retry-After": tc.retry})
		var line struct {
			Level, Route, Error string
			ID                  string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(log), &line); err != nil || line.Error == "" {
			t.Fatalf("not logged once: %v in %q", err, log)
		}
		check.Same(t, "line", []string{line.Level, line.ID, line.Route}, []string{tc.level, "r-1", "/sales/:sale/:path"})
	})
}

// Problems changes no answer that has begun, sends nothing to a client that has left, and logs only failures.
func TestNoProblem(t *testing.T) {
	type test struct {
		handler func(c *gin.Context, leave func())
		status  int
		body    string
		logged  bool
	}
	ok := func(c *gin.Context) { c.String(http.StatusOK, "ok") }
	check.Each(t, map[string]test{
		"success":            {func(c *gin.Context, _ func()) { ok(c) }, 200, "ok", false},
		"an abort":           {func(c *gin.Context, _ func()) { c.AbortWithStatus(http.StatusNoContent) }, 204, "", false},
		"refused once begun": {func(c *gin.Context, _ func()) { ok(c); refuse(c, model.NotFound) }, 200, "ok", false},
		"failed once begun":  {func(c *gin.Context, _ func()) { ok(c); middleware.Fail(c, errors.New("x")) }, 200, "ok", true},
		"failed behind a deadline": {func(c *gin.Context, _ func()) {
			middleware.Deadline(time.Minute)(c)
			ok(c)
			middleware.Fail(c, errors.New("x"))
		}, 200, "ok", true},
		"left before the answer": {func(c *gin.Context, leave func()) {
			leave()
			middleware.Fail(c, fmt.Errorf("wait: %w", context.Canceled))
		}, statusClientGone, "", false},
		"left during the answer": {func(c *gin.Context, leave func()) {
			ok(c)
			leave()
			middleware.Fail(c, errors.New("broken pipe"))
		}, 200, "ok", false},
	}, func(t *testing.T, tc test) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		w, _, log := problemOf(t, func(c *gin.Context) { tc.handler(c, leave) }, problemRequest(t).WithContext(ctx))
		check.Same(t, "status", w.Code, tc.status)
		check.Same(t, "body", w.Body.String(), tc.body)
		check.Same(t, "logged", log != "", tc.logged)
	})
}

func TestLanguage(t *testing.T) {
	for accept, isChinese := range map[string]bool{
		"": false, "zh": true, "zh-CN": true, "zh-TW": true, "ZH-cn;Q=0.5": true, "zha": false,
		"zh-CN,zh;q=0.9,en;q=0.8": true, "zh-Hant-HK, zh ; q=0.9": true, "en-GB,en;q=0.9": false, // as browsers send
		"en,zh;q=0.9": false, "zh;q=0.9,en": false, "fr,zh;q=0.5": true, "fr,de;q=0.5": false,
		"zh,en": true, "en,zh": false, "zh;q=0": false, "*,zh;q=0": false, "*,zh;q=0.5": false, "zh,*;q=0.5": true,
		"zh;q=high": false, "zh;q=NaN": false, ";;,,=;q": false,
	} {
		w, got, _ := problemOf(t, refusing(middleware.Refusal{Verdict: model.SoldOut}), problemRequest(t, "Accept-Language", accept))
		want, language := problems[model.SoldOut], english
		if isChinese {
			language = chinese
		}
		check.Same(t, accept, []any{got["title"], got["detail"]}, []any{want.Title[language], want.Detail[language]})
		sameHeader(t, accept, w.Header(), map[string]string{"Content-Language": languages[language][0]})
	}
}

// A refusal is one JSON object for every header of a language.
func FuzzLanguage(f *testing.F) {
	for _, seed := range []string{"en;q=0,zh;q=0.1", "*", "zh;q=nan", "zh;q=-1", "zh;q=1e999", ";q=1,zh", "ZH-hant"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		s := newShop(t).soldOut()
		r := s.purchase(oneUnit)
		r.Header["Accept-Language"] = []string{header}
		w := s.serve(r)
		got := readProblem(t, w)
		check.Same(t, "code", got["code"], any("sold_out"))
		chinese := w.Header().Get("Content-Language") == "zh"
		check.Same(t, "the detail is Chinese", got["detail"] == problems[model.SoldOut].Detail[1], chinese)
		if chinese && !strings.Contains(strings.ToLower(header), "zh") {
			t.Errorf("%q is answered in Chinese", header)
		}
	})
}

func TestDetail(t *testing.T) {
	refuse := func(c *gin.Context) {
		refuseInvalid(c, &service.Invalid{Field: "quota", Reason: service.OutOfRange, Min: 1, Max: 10})
	}
	for language, want := range map[string]string{"en": "quota must be 1 to 10", "zh": "quota 必须在 1 到 10 之间"} {
		_, got, _ := problemOf(t, refuse, problemRequest(t, "Accept-Language", language))
		check.Same(t, language, []any{got["detail"], got["field"]}, []any{want, "quota"})
	}
}

// Every reason has a text in both languages, with the same places.
func TestReasonsAreWorded(t *testing.T) {
	want := declared[service.Reason]("../service/invalid.go", "Reason")
	want = append(want, declared[service.Reason]("words.go", "service.Reason")...)
	slices.Sort(want)
	check.Same(t, "reasons", slices.Sorted(maps.Keys(reasons)), want)
	places := regexp.MustCompile(`\{[a-z]+\}`)
	for reason, words := range reasons {
		english, chinese := places.FindAllString(words[0], -1), places.FindAllString(words[1], -1)
		slices.Sort(english)
		slices.Sort(chinese)
		if !slices.Equal(english, chinese) || !isASCII(words[0]) || isASCII(words[1]) || words[0] == "" {
			t.Errorf("%s: %+v", reason, words)
		}
		long := &service.Invalid{Field: "f", Reason: reason, Value: strings.Repeat("x", 5000)} // as an operator may send it
		if n := len(word(long, 0)); n > 5*maxQuotedBytes {
			t.Errorf("%s: a text of %d bytes", reason, n)
		}
	}
}

// The stages have the order of the router.
func TestPanicThroughAllStages(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	now := func() time.Time { return time.Time{} }
	engine := gin.New()
	engine.Use(middleware.RequestID(), middleware.AccessLog(log, now), Problems(log), middleware.Recovery(), middleware.Headers())
	engine.GET("/sales/:sale/:path", func(*gin.Context) { panic("secret") })
	w := httptest.NewRecorder()
	engine.ServeHTTP(w, problemRequest(t))
	check.Same(t, "code", readProblem(t, w)["code"], any("internal"))
	sameHeader(t, "answer", w.Header(), map[string]string{"X-Content-Type-Options": "nosniff"})
	for _, text := range []string{"secret", ".go"} {
		check.Same(t, "the answer has "+text, strings.Contains(w.Body.String(), text), false)
	}
	check.Same(t, "panics in the log", strings.Count(out.String(), "panic: secret"), 1)
	for text, want := range map[string]bool{
		"problem_test.go": true, "secretpath": false, `"level":"WARN","msg":"request"`: true, `"status":500`: true,
	} {
		check.Same(t, "the log has "+text, strings.Contains(out.String(), text), want)
	}
}

// An answer is spliced. The test encodes it at once.
func TestProblemBytes(t *testing.T) {
	for verdict, p := range problems {
		for _, invalid := range []*service.Invalid{nil, {Field: `a <b>, "界"`, Reason: unknownField}, {Reason: emptyBody}} {
			for i, language := range []string{english: "en", chinese: "zh"} {
				detail := p.Detail[i]
				w, _, log := problemOf(t, func(c *gin.Context) {
					c.Header("Cache-Control", "max-age=5")
					middleware.Refuse(c, middleware.Refusal{Verdict: verdict, Invalid: invalid, RetryAfter: time.Minute})
				}, problemRequest(t, "Accept-Language", language))
				field := ""
				if invalid != nil {
					detail, field = word(invalid, i), invalid.Field
				}
				want := check.Must(json.Marshal(struct {
					Type      string        `json:"type"`
					Title     string        `json:"title"`
					Status    int           `json:"status"`
					Detail    string        `json:"detail"`
					Code      model.Verdict `json:"code"`
					Field     string        `json:"field,omitempty"`
					RequestID string        `json:"request_id"`
				}{"/problems/" + string(verdict), p.Title[i], p.Status, detail, verdict, field, "r-1"}))
				check.Same(t, "status", w.Code, p.Status)
				check.Same(t, "body", w.Body.String(), string(want))
				check.Same(t, "log", log, "")
				header := http.Header{
					"Content-Type": {problemJS}, "Content-Language": {language}, "Vary": {"Accept-Language"},
					"Cache-Control": {"no-store"}, "X-Request-Id": {"r-1"},
				}
				switch p.Status {
				case 401:
					header.Set("WWW-Authenticate", "Bearer")
				case 429, 503:
					header.Set("Retry-After", "60")
				}
				check.Same(t, "headers", w.Header(), header)
			}
		}
	}
}

// Answers share the values of headers. A request that changes its own must not change the next answer.
func TestProblemsKeepTheirHeadersApart(t *testing.T) {
	engine := gin.New()
	engine.Use(Problems(slog.New(slog.DiscardHandler)), func(c *gin.Context) {
		c.Writer.Header().Add("Vary", "Origin")
		refuse(c, model.NotFound)
	})
	engine.GET("/sales/:sale/:path", func(*gin.Context) {})
	for range 2 {
		w := httptest.NewRecorder()
		engine.ServeHTTP(w, problemRequest(t))
		sameHeader(t, "answer", w.Header(), map[string]string{"Vary": "Origin, Accept-Language", "Cache-Control": "no-store"})
		w.Header().Add("Vary", "x")
		w.Header().Add("Cache-Control", "x")
	}
}
