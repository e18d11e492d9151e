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
	"reflect"
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
)

// problemEngine puts Problems around a handler, and returns what they log.
func problemEngine(handler gin.HandlerFunc) (*gin.Engine, *bytes.Buffer) {
	var out bytes.Buffer
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.Use(middleware.RequestID(), Problems(slog.New(slog.NewJSONHandler(&out, nil))))
	engine.NoRoute(NoRoute)
	engine.NoMethod(NoMethod)
	engine.GET("/sales/:sale/:path", handler)
	return engine, &out
}

func problemRequest(t *testing.T, headers ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/sales/S1/secretpath", nil)
	r.Header.Set("X-Request-ID", "r-1")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func answerOf(engine *gin.Engine, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	engine.ServeHTTP(w, r)
	return w
}

// readProblem checks what all problems have in common.
func readProblem(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("%v in %q", err, w.Body)
	}
	want := []string{"code", "detail", "request_id", "status", "title", "type"}
	if keys := slices.DeleteFunc(slices.Sorted(maps.Keys(got)), func(key string) bool { return key == "field" }); !slices.Equal(keys, want) {
		t.Errorf("members %v, want %v", keys, want)
	}
	if got["status"] != float64(w.Code) {
		t.Errorf("status %v in the body, %d on the wire", got["status"], w.Code)
	}
	if got["type"] != fmt.Sprintf("/problems/%v", got["code"]) {
		t.Errorf("type %v of code %v", got["type"], got["code"])
	}
	for header, want := range map[string]string{"Content-Type": "application/problem+json", "Vary": "Accept-Language", "Cache-Control": "no-store"} {
		if w.Header().Get(header) != want {
			t.Errorf("%s: %q, want %q", header, w.Header().Get(header), want)
		}
	}
	return got
}

// declared reads the values of a type's constants out of a source file.
func declared[T ~string](t *testing.T, path, kind string) (list []T) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if spec.Type == nil || types.ExprString(spec.Type) != kind {
			return false
		}
		for _, value := range spec.Values {
			code, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, T(code))
		}
		return false
	})
	return list
}

func TestProblemsDescribeEveryVerdict(t *testing.T) {
	want := append(declared[model.Verdict](t, "../model/verdict.go", "Verdict"), internalError, methodNotAllowed)
	want = slices.DeleteFunc(want, func(v model.Verdict) bool {
		return v == model.Accepted || v == model.NoGate // no problem at all; never told
	})
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(problems)); !slices.Equal(got, want) {
		t.Errorf("problems for %v, want them for %v", got, want)
	}
	for verdict, p := range problems {
		if p.status < 400 || http.StatusText(p.status) == "" {
			t.Errorf("%s: status %d", verdict, p.status)
		}
		for _, words := range []string{p.english.title, p.english.detail, p.chinese.title, p.chinese.detail} {
			if words == "" {
				t.Errorf("%s: a text is missing", verdict)
			}
		}
		if !isASCII(p.english.title+p.english.detail) || isASCII(p.chinese.title) || isASCII(p.chinese.detail) {
			t.Errorf("%s: a text is in the wrong language", verdict)
		}
	}
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0
}

// TestRefusals holds the statuses to what clients were promised.
func TestRefusals(t *testing.T) {
	promised := map[int][]model.Verdict{
		400: {"bad_request"},
		401: {"unauthenticated", "bad_signature"},
		403: {"bad_path", "forbidden"},
		404: {"not_found"},
		409: {
			"not_started", "ended", "paused", "limit_reached", "sold_out", "not_payable", "not_cancellable",
			"not_refundable", "amount_mismatch", "name_taken", "lost", "failed",
		},
		413: {"too_large"},
		415: {"unsupported_media_type"},
		422: {"idempotency_mismatch"},
		429: {"rate_limited", "too_frequent"},
		503: {"unavailable"},
	}
	for status, verdicts := range promised {
		for _, verdict := range verdicts {
			t.Run(string(verdict), func(t *testing.T) {
				engine, log := problemEngine(func(c *gin.Context) {
					c.Header("Cache-Control", "max-age=5")
					middleware.Refuse(c, middleware.Refusal{Verdict: verdict, RetryAfter: 1200 * time.Millisecond})
				})
				w := answerOf(engine, problemRequest(t))

				got := readProblem(t, w)
				if w.Code != status || got["code"] != string(verdict) || got["request_id"] != "r-1" {
					t.Errorf("%d %v, want %d %s for request r-1", w.Code, got, status, verdict)
				}
				wantRetry := map[int]string{429: "2", 503: "2"}[status]
				if retry := w.Header().Get("Retry-After"); retry != wantRetry {
					t.Errorf("Retry-After: %q, want %q", retry, wantRetry)
				}
				wantChallenge := map[int]string{401: "Bearer"}[status]
				if challenge := w.Header().Get("WWW-Authenticate"); challenge != wantChallenge {
					t.Errorf("WWW-Authenticate: %q, want %q", challenge, wantChallenge)
				}
				if log.Len() != 0 {
					t.Errorf("a refusal was logged: %s", log)
				}
			})
		}
	}
}

func TestRetryAfter(t *testing.T) {
	tests := map[string]struct {
		after time.Duration
		want  string
	}{
		"not said":        {0, "1"},
		"in the past":     {-time.Minute, "1"},
		"less than one":   {time.Millisecond, "1"},
		"a whole second":  {time.Second, "1"},
		"and a bit":       {time.Second + 1, "2"},
		"a minute":        {time.Minute, "60"},
		"never, as it is": {1<<63 - 1, "9223372037"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			engine, _ := problemEngine(func(c *gin.Context) {
				middleware.Refuse(c, middleware.Refusal{Verdict: model.RateLimited, RetryAfter: tc.after})
			})
			if got := answerOf(engine, problemRequest(t)).Header().Get("Retry-After"); got != tc.want {
				t.Errorf("Retry-After: %q, want %q", got, tc.want)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	tests := map[string]struct {
		err    error
		status int
		code   model.Verdict
		level  string
	}{
		"a store is down":       {fmt.Errorf("settle secret: %w", model.ErrUnavailable), 503, "unavailable", "WARN"},
		"too slow":              {fmt.Errorf("SELECT secret: %w", context.DeadlineExceeded), 503, "unavailable", "WARN"},
		"a shutdown":            {fmt.Errorf("wait: secret: %w", context.Canceled), 503, "unavailable", "WARN"},
		"anything else":         {errors.New("SELECT secret FROM /var/lib"), 500, "internal", "ERROR"},
		"a lost race":           {fmt.Errorf("secret: %w", model.ErrLostRace), 500, "internal", "ERROR"},
		"an undescribed code":   {middleware.Refusal{Verdict: "secret"}, 500, "internal", "ERROR"},
		"accepted is no answer": {middleware.Refusal{Verdict: model.Accepted, Invalid: &service.Invalid{Field: "secret", Reason: missingField}}, 500, "internal", "ERROR"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			engine, log := problemEngine(func(c *gin.Context) { middleware.Fail(c, tc.err) })
			w := answerOf(engine, problemRequest(t))

			got := readProblem(t, w)
			if w.Code != tc.status || got["code"] != string(tc.code) {
				t.Errorf("%d %v, want %d %s", w.Code, got["code"], tc.status, tc.code)
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the error shows in %s", w.Body)
			}
			if (w.Header().Get("Retry-After") == "1") != (tc.status == 503) {
				t.Errorf("Retry-After: %q", w.Header().Get("Retry-After"))
			}
			var line map[string]any
			if err := json.Unmarshal(log.Bytes(), &line); err != nil {
				t.Fatalf("not logged once: %v in %q", err, log)
			}
			if line["level"] != tc.level || line["request_id"] != "r-1" || line["route"] != "/sales/:sale/:path" || line["error"] == "" {
				t.Errorf("logged %v", line)
			}
			if strings.Contains(log.String(), "secretpath") {
				t.Errorf("the URL was logged: %s", log)
			}
		})
	}
}

func TestClientLeft(t *testing.T) {
	tests := map[string]struct {
		before func(*gin.Context)
		err    error
		status int
		body   string
	}{
		"before the answer": {func(*gin.Context) {}, fmt.Errorf("wait: %w", context.Canceled), statusClientGone, ""},
		"in the midst of it": {
			func(c *gin.Context) { c.String(http.StatusOK, "half") }, errors.New("broken pipe"), http.StatusOK, "half",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			engine, log := problemEngine(func(c *gin.Context) {
				tc.before(c)
				leave()
				middleware.Fail(c, tc.err)
			})
			w := answerOf(engine, problemRequest(t).WithContext(ctx))
			if w.Code != tc.status || w.Body.String() != tc.body {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, tc.status, tc.body)
			}
			if log.Len() != 0 {
				t.Errorf("logged %s", log)
			}
		})
	}
}

func TestNoProblem(t *testing.T) {
	tests := map[string]struct {
		handler gin.HandlerFunc
		status  int
		body    string
		logged  bool
	}{
		"a good answer":      {func(c *gin.Context) { c.String(http.StatusOK, "ok") }, 200, "ok", false},
		"an abort, no error": {func(c *gin.Context) { c.AbortWithStatus(http.StatusNoContent) }, 204, "", false},
		"refused once begun": {func(c *gin.Context) { c.String(http.StatusOK, "ok"); NoRoute(c) }, 200, "ok", false},
		"failed once begun": {
			func(c *gin.Context) { c.String(http.StatusOK, "ok"); middleware.Fail(c, errors.New("x")) }, 200, "ok", true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			engine, log := problemEngine(tc.handler)
			w := answerOf(engine, problemRequest(t))
			if w.Code != tc.status || w.Body.String() != tc.body {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, tc.status, tc.body)
			}
			if (log.Len() != 0) != tc.logged {
				t.Errorf("logged %q", log)
			}
		})
	}
}

func TestUnknownRoutesAndMethods(t *testing.T) {
	tests := map[string]struct {
		method, target string
		status         int
		code, allow    string
	}{
		"route":            {http.MethodGet, "/nowhere", 404, "not_found", ""},
		"route and method": {"BREW", "/nowhere", 404, "not_found", ""},
		"method":           {http.MethodDelete, "/sales/S1/secretpath", 405, "method_not_allowed", "GET"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			engine, _ := problemEngine(func(*gin.Context) {})
			w := answerOf(engine, httptest.NewRequestWithContext(t.Context(), tc.method, tc.target, nil))
			got := readProblem(t, w)
			if w.Code != tc.status || got["code"] != tc.code || w.Header().Get("Allow") != tc.allow {
				t.Errorf("%d %v, Allow %q; want %d %s, %q", w.Code, got["code"], w.Header().Get("Allow"), tc.status, tc.code, tc.allow)
			}
		})
	}
}

func TestLanguage(t *testing.T) {
	tests := map[string]struct {
		accept  string
		chinese bool
	}{
		"none":                       {"", false},
		"zh":                         {"zh", true},
		"zh-CN":                      {"zh-CN", true},
		"zh-TW":                      {"zh-TW", true},
		"a browser in China":         {"zh-CN,zh;q=0.9,en;q=0.8", true},
		"a browser in Hong Kong":     {"zh-Hant-HK, zh ; q=0.9", true},
		"a browser in London":        {"en-GB,en;q=0.9", false},
		"Chinese second":             {"en,zh;q=0.9", false},
		"English second, named last": {"zh;q=0.9,en", false},
		"Chinese behind French":      {"fr,zh;q=0.5", true},
		"neither":                    {"fr,de;q=0.5", false},
		"equals":                     {"zh,en", true},
		"equals, the other way":      {"en,zh", false},
		"Chinese refused":            {"zh;q=0", false},
		"all but Chinese":            {"*,zh;q=0", false},
		"anything, sooner":           {"*,zh;q=0.5", false},
		"anything, later":            {"zh,*;q=0.5", true},
		"upper case":                 {"ZH-cn;Q=0.5", true},
		"another language's name":    {"zha", false},
		"a broken weight":            {"zh;q=high", false},
		"no number":                  {"zh;q=NaN", false},
		"rubbish":                    {";;,,=;q", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			engine, _ := problemEngine(func(c *gin.Context) { middleware.Refuse(c, middleware.Refusal{Verdict: model.SoldOut}) })
			w := answerOf(engine, problemRequest(t, "Accept-Language", tc.accept))
			want, language := problems[model.SoldOut].english, "en"
			if tc.chinese {
				want, language = problems[model.SoldOut].chinese, "zh"
			}
			got := readProblem(t, w)
			if got["title"] != want.title || got["detail"] != want.detail || w.Header().Get("Content-Language") != language {
				t.Errorf("%v in %q", got, w.Header().Get("Content-Language"))
			}
		})
	}
}

func TestDetail(t *testing.T) {
	refuse := func(c *gin.Context) {
		refuseInvalid(c, &service.Invalid{Field: "quota", Reason: service.OutOfRange, Min: 1, Max: 10})
	}
	for language, want := range map[string]string{"en": "quota must be 1 to 10", "zh": "quota 必须在 1 到 10 之间"} {
		engine, _ := problemEngine(refuse)
		got := readProblem(t, answerOf(engine, problemRequest(t, "Accept-Language", language)))
		if got["detail"] != want || got["field"] != "quota" {
			t.Errorf("%s: %v, want %q", language, got, want)
		}
	}
}

// Every reason has words in both languages, with the same places for what they are about.
func TestReasonsAreWorded(t *testing.T) {
	want := slices.Concat(declared[service.Reason](t, "../service/invalid.go", "Reason"), declared[service.Reason](t, "reasons.go", "service.Reason"))
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(reasons)); !slices.Equal(got, want) {
		t.Errorf("words for %v, want them for %v", got, want)
	}
	places := regexp.MustCompile(`\{[a-z]+\}`)
	for reason, words := range reasons {
		english, chinese := places.FindAllString(words.english, -1), places.FindAllString(words.chinese, -1)
		slices.Sort(english)
		slices.Sort(chinese)
		if !slices.Equal(english, chinese) || !isASCII(words.english) || isASCII(words.chinese) || words.english == "" {
			t.Errorf("%s: %+v", reason, words)
		}
	}
}

// TestPanicThroughAllStages has the stages in the order in which the router has them.
func TestPanicThroughAllStages(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	now := func() time.Time { return time.Time{} }
	engine := gin.New()
	engine.Use(middleware.RequestID(), middleware.AccessLog(log, now), Problems(log), middleware.Recovery(), middleware.Headers())
	engine.GET("/sales/:sale/:path", func(*gin.Context) { panic("secret") })
	w := answerOf(engine, problemRequest(t))

	if got := readProblem(t, w); w.Code != http.StatusInternalServerError || got["code"] != "internal" {
		t.Errorf("%d %v", w.Code, got)
	}
	if strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String(), ".go") {
		t.Errorf("the panic shows in %s", w.Body)
	}
	if w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Error("the headers are missing")
	}
	if n := strings.Count(out.String(), "panic: secret"); n != 1 {
		t.Errorf("the panic was logged %d times: %s", n, &out)
	}
	if n := strings.Count(out.String(), "problem_test.go"); n == 0 {
		t.Errorf("no stack was logged: %s", &out)
	}
	if strings.Contains(out.String(), "secretpath") {
		t.Errorf("the URL was logged: %s", &out)
	}
	if !strings.Contains(out.String(), `"level":"WARN","msg":"request"`) || !strings.Contains(out.String(), `"status":500`) {
		t.Errorf("the access log did not see the answer: %s", &out)
	}
}

// TestProblemBytes compares what is spliced with the whole of it encoded at once.
func TestProblemBytes(t *testing.T) {
	for verdict, p := range problems {
		for _, invalid := range []*service.Invalid{nil, {Field: `a <b>, "界"`, Reason: unknownField}, {Reason: emptyBody}} {
			for _, language := range []string{"en", "zh"} {
				engine, _ := problemEngine(func(c *gin.Context) {
					middleware.Refuse(c, middleware.Refusal{Verdict: verdict, Invalid: invalid, RetryAfter: time.Minute})
				})
				w := answerOf(engine, problemRequest(t, "Accept-Language", language))
				words, field := p.english, ""
				if language == "zh" {
					words = p.chinese
				}
				if invalid != nil {
					words.detail, field = word(invalid, language == "zh"), invalid.Field
				}
				want, err := json.Marshal(struct {
					Type      string        `json:"type"`
					Title     string        `json:"title"`
					Status    int           `json:"status"`
					Detail    string        `json:"detail"`
					Code      model.Verdict `json:"code"`
					Field     string        `json:"field,omitempty"`
					RequestID string        `json:"request_id"`
				}{"/problems/" + string(verdict), words.title, p.status, words.detail, verdict, field, "r-1"})
				if err != nil {
					t.Fatal(err)
				}
				if w.Body.String() != string(want) || w.Code != p.status {
					t.Errorf("%s, %s, %+v:\ngot  %d %s\nwant %d %s", verdict, language, invalid, w.Code, w.Body, p.status, want)
				}
				header := http.Header{
					"Content-Type": {"application/problem+json"}, "Content-Language": {language}, "Vary": {"Accept-Language"},
					"Cache-Control": {"no-store"}, "X-Request-Id": {"r-1"},
				}
				switch p.status {
				case 401:
					header.Set("WWW-Authenticate", "Bearer")
				case 429, 503:
					header.Set("Retry-After", "60")
				}
				if !reflect.DeepEqual(w.Header(), header) {
					t.Errorf("%s, %s: %v, want %v", verdict, language, w.Header(), header)
				}
			}
		}
	}
}

// Answers share the values of headers; what one request does to its own must not reach the next.
func TestProblemsKeepTheirHeadersApart(t *testing.T) {
	engine, _ := problemEngine(func(c *gin.Context) {
		c.Writer.Header().Add("Vary", "Origin")
		middleware.Refuse(c, middleware.Refusal{Verdict: model.SoldOut})
	})
	for range 2 {
		header := answerOf(engine, problemRequest(t)).Header()
		for name, want := range map[string][]string{"Vary": {"Origin", "Accept-Language"}, "Cache-Control": {"no-store"}} {
			if got := header.Values(name); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
			header.Add(name, "x")
		}
	}
}
