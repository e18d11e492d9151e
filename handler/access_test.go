package handler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/sandbox"
	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

// everybody stands for no role: strangers as well.
const everybody model.Role = ""

// access has each route under the role that it is for. Whoever adds a route decides here who may use it.
var access = map[model.Role][]string{
	everybody: {
		"GET /", "GET /.well-known/jwks.json", "GET /api", "GET /api/v1/campaigns/:campaign",
		"GET /api/v1/campaigns/:campaign/events", "GET /api/v1/login", "POST /api/v1/payments/callback",
		"POST /api/v1/payments/notices", "GET /api/v1/sales", "GET /api/v1/sales/:sale", "GET /api/v1/sales/:sale/draw.json",
		"GET /api/v1/sales/:sale/events", "GET /api/v1/sales/:sale/line", "POST /api/v1/sessions", "POST /api/v1/sessions/code",
		"GET /api/v1/time", "POST /api/v1/users", "GET /assets/:name", "GET /campaigns/:campaign", "GET /console",
		"GET /console/campaigns/:campaign", "GET /console/endpoints", "GET /console/lab", "GET /console/orders", "GET /console/payments",
		"GET /console/sales/:sale", "GET /console/shop", "GET /console/staff", "GET /embed.js", "GET /favicon.ico", "GET /healthz", "GET /lab/reports/:report",
		"GET /login", "GET /openapi.json", "GET /openapi.yaml", "GET /orders", "GET /pay/:payment", "POST /pay/:payment",
		"GET /readyz", "GET /robots.txt", "GET /s/:code", "GET /s/:code/qr.svg", "GET /sales/:sale",
	},
	model.RoleBuyer: {
		"GET /api/v1/orders", "DELETE /api/v1/orders/:id", "GET /api/v1/orders/:id", "POST /api/v1/orders/:id/payments",
		"POST /api/v1/sales/:sale/:path/orders", "POST /api/v1/sales/:sale/entries", "GET /api/v1/sales/:sale/entries/challenge",
		"DELETE /api/v1/sales/:sale/entries/mine", "GET /api/v1/sales/:sale/entries/mine",
		"GET /api/v1/sales/:sale/entries/mine/proof", "POST /api/v1/sales/:sale/path",
	},
	model.RoleHolds: {
		"GET /api/v1/holds/:id", "POST /api/v1/holds/:id/refunded", "POST /api/v1/holds/:id/release",
		"POST /api/v1/holds/:id/settle",
	},
	model.RoleViewer: {
		"GET /api/v1/admin/catalog", "GET /api/v1/admin/orders", "GET /api/v1/admin/orders/:id",
		"GET /api/v1/admin/campaigns/:campaign",
		"GET /api/v1/admin/campaigns/:campaign/live", "GET /api/v1/admin/campaigns/:campaign/operations",
		"GET /api/v1/admin/campaigns/:campaign/orders", "GET /api/v1/admin/campaigns/:campaign/orders.csv",
		"GET /api/v1/admin/campaigns/:campaign/report", "GET /api/v1/admin/campaigns/:campaign/sales.csv",
		"GET /api/v1/admin/endpoint-operations", "GET /api/v1/admin/endpoints",
		"GET /api/v1/admin/endpoints/:endpoint/deliveries", "GET /api/v1/admin/events", "GET /api/v1/admin/lab",
		"GET /api/v1/admin/lab/events", "GET /api/v1/admin/orders.csv", "GET /api/v1/admin/payments", "GET /api/v1/admin/rehearsals",
		"GET /api/v1/admin/rehearsals/:rehearsal", "GET /api/v1/admin/sales", "GET /api/v1/admin/sales/:sale", "GET /api/v1/admin/sales/:sale/audit",
		"GET /api/v1/admin/sales/:sale/live", "GET /api/v1/admin/sales/:sale/operations", "GET /api/v1/admin/sales/:sale/orders",
		"GET /api/v1/admin/sales/:sale/orders.csv", "GET /api/v1/admin/sales/:sale/report", "GET /api/v1/admin/shop", "GET /api/v1/admin/shop-operations", "GET /api/v1/admin/staff", "GET /api/v1/admin/staff-operations",
		"GET /api/v1/admin/stats",
	},
	model.RoleSupport: {
		"POST /api/v1/admin/orders/:id/cancel", "POST /api/v1/admin/orders/:id/refund",
	},
	model.RoleOperator: {
		"POST /api/v1/admin/campaigns", "PATCH /api/v1/admin/campaigns/:campaign", "POST /api/v1/admin/campaigns/:campaign/close",
		"POST /api/v1/admin/campaigns/:campaign/pause", "POST /api/v1/admin/campaigns/:campaign/resume",
		"POST /api/v1/admin/campaigns/:campaign/sales", "POST /api/v1/admin/endpoints",
		"DELETE /api/v1/admin/endpoints/:endpoint", "PATCH /api/v1/admin/endpoints/:endpoint",
		"POST /api/v1/admin/endpoints/:endpoint/deliveries/:delivery", "POST /api/v1/admin/endpoints/:endpoint/secret",
		"DELETE /api/v1/admin/lab", "POST /api/v1/admin/lab", "POST /api/v1/admin/sales", "PATCH /api/v1/admin/sales/:sale",
		"POST /api/v1/admin/sales/:sale/close", "POST /api/v1/admin/sales/:sale/line/extend",
		"POST /api/v1/admin/sales/:sale/line/void", "POST /api/v1/admin/sales/:sale/pause",
		"POST /api/v1/admin/sales/:sale/resume", "PUT /api/v1/admin/shop", "POST /api/v1/admin/staff", "DELETE /api/v1/admin/staff/:name",
		"PATCH /api/v1/admin/staff/:name", "POST /api/v1/admin/staff/:name/secret",
	},
}

// mayUse has the routes that each kind of user passes to, beside those for everybody, by the role that they are for. Whoever
// adds a role decides here what it may do: of a token, and of a key, which is of a server and never buys.
var mayUse = map[string]map[model.Role][]model.Role{
	"token": {
		model.RoleBuyer:    {model.RoleBuyer},
		model.RoleCrowd:    {model.RoleBuyer}, // of shadow sales
		model.RoleHolds:    {model.RoleHolds},
		model.RoleViewer:   {model.RoleBuyer, model.RoleViewer},
		model.RoleSupport:  {model.RoleBuyer, model.RoleViewer, model.RoleSupport},
		model.RoleOperator: {model.RoleBuyer, model.RoleViewer, model.RoleSupport, model.RoleOperator, model.RoleHolds},
	},
	"key": {
		model.RoleBuyer:    {},
		model.RoleCrowd:    {},
		model.RoleHolds:    {model.RoleHolds},
		model.RoleViewer:   {model.RoleViewer},
		model.RoleSupport:  {model.RoleViewer, model.RoleSupport},
		model.RoleOperator: {model.RoleViewer, model.RoleSupport, model.RoleOperator, model.RoleHolds},
	},
}

// roster is a list of the staff that only the tests change.
type roster struct {
	service.StaffStore

	mu   sync.Mutex
	list []model.Account
}

// Staff is part of service.StaffStore.
func (r *roster) Staff(context.Context) (list []model.Account, err error) {
	r.change(func(all []model.Account) []model.Account {
		list = slices.Clone(all)
		return all
	})
	return list, nil
}

// change gives the list to fn, and takes what it returns.
func (r *roster) change(fn func(list []model.Account) []model.Account) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = fn(r.list)
}

func (r *roster) add(account model.Account) {
	r.change(func(list []model.Account) []model.Account { return append(list, account) })
}

func (*roster) Used(context.Context, string) error { return nil }

// hire returns the header of an account of the staff, or of a key.
func (s *shop) hire(name string, key bool, role model.Role) string {
	s.Helper()
	staff := s.api.Staff.Service
	if staff.Store == nil {
		staff.Store, staff.Now = &roster{}, time.Now
	}
	list := staff.Store.(*roster)
	if key {
		secret := "fs_" + name
		sum := sha256.Sum256([]byte(secret))
		list.add(model.Account{ID: model.KeyPrefix + name, Name: name, Role: role, PasswordHash: hex.EncodeToString(sum[:])})
		return "Bearer " + secret
	}
	account := model.Account{ID: model.OperatorPrefix + name, Name: name, Role: role, PasswordHash: name}
	list.add(account)
	token, _, err := staff.Tokens.Sign(model.Identity{UserID: account.ID, Role: role, Stamp: staff.Tokens.Stamp(account)}, time.Hour)
	check.Done(err)
	return "Bearer " + token
}

// A name that no id can be is unknown on every route of the staff and of the shop's servers.
func TestOddIDs(t *testing.T) {
	s := newShop(t)
	for _, route := range s.handler().(*gin.Engine).Routes() {
		of := strings.HasPrefix(route.Path, "/api/v1/admin/") || strings.HasPrefix(route.Path, "/api/v1/holds/")
		for _, odd := range []string{"%C3%A9", "%00", "a%20b", "%F0%9F%8E%A7", "%ff"} {
			path := regexp.MustCompile(`:\w+`).ReplaceAllLiteralString(route.Path, odd)
			if of && path != route.Path {
				check.Same(t, route.Method+" "+path, s.serve(s.request(route.Method, path, "{}", "Authorization", s.token(model.RoleOperator))).Code, http.StatusNotFound)
			}
		}
	}
}

// Every role, as a token of another issuer, as an account of the staff and as a key, passes to exactly those routes that it
// may use, and strangers to those for everybody. What the handler answers then does not matter: most have nothing to work with.
func TestAccess(t *testing.T) {
	routes := newShop(t).handler().(*gin.Engine).Routes()
	leastOf := map[string]model.Role{}
	for least, names := range access {
		for _, name := range names {
			leastOf[name] = least
		}
	}
	found := map[string]bool{}
	walk := func(who, header string, may []model.Role, otherwise model.Verdict, s *shop) {
		for _, route := range routes {
			name := strings.Replace(route.Method, http.MethodHead, http.MethodGet, 1) + " " + route.Path
			least, decided := leastOf[name]
			if found[name] = true; !decided {
				t.Errorf("%s: who may use it?", name)
				continue
			}
			path := strings.NewReplacer(":sale", benchSale, ":", "").Replace(route.Path)
			var refusal struct{ Code model.Verdict }
			_ = json.Unmarshal(s.serve(s.request(route.Method, path, "", "Authorization", header)).Body.Bytes(), &refusal)
			want := otherwise
			if least == everybody || slices.Contains(may, least) {
				want = "passes"
			}
			got := refusal.Code
			if got != model.Unauthenticated && got != model.Forbidden && got != model.RateLimited {
				got = "passes"
			}
			check.Same(t, who+": "+route.Method+" "+route.Path, got, want)
		}
	}
	walk("a stranger", "", nil, model.Unauthenticated, newShop(t))
	other := newShop(t)
	other.hire("other", true, model.RoleOperator)
	walk("a forged key", "Bearer fs_x", nil, model.Unauthenticated, other)
	for _, role := range model.Roles() {
		for kind, may := range mayUse {
			passes, decided := may[role]
			if !decided {
				t.Errorf("what may a %s of the role %s do?", kind, role)
			}
			s := newShop(t) // which also has its own limits
			header := s.token(role)
			if kind == "key" {
				header = s.hire("x", true, role)
			}
			walk(kind+" of the role "+string(role), header, passes, model.Forbidden, s)
		}
		if role.May(model.RoleViewer) {
			s := newShop(t)
			walk("account of the role "+string(role), s.hire("x", false, role), mayUse["token"][role], model.Forbidden, s)
		}
	}
	check.Same(t, "routes", slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(leastOf)))
}

// noticed is a provider that sends notices, and accepts none.
type noticed struct{ service.Provider }

func (noticed) Read(http.Header, []byte) (model.Report, bool, error) {
	return model.Report{}, false, model.ErrBadNotice
}

// Strangers are bounded at the routes of the staff, of the shop's checkout and of payment providers, which have no limit in
// front, and never keep a right key or signature out.
func TestStrangersAreBounded(t *testing.T) {
	at := map[string]string{
		"/api/v1/admin/staff": http.MethodGet, "/api/v1/admin/sales": http.MethodPost, "/api/v1/holds/x": http.MethodGet,
		"/api/v1/holds/x/settle": http.MethodPost, "/api/v1/payments/callback": http.MethodPost, "/api/v1/payments/notices": http.MethodPost,
	}
	for path, method := range at {
		s := newShop(t)
		s.api.Door.Limits.AddressRate = 0.001 // a request, and the next one much later
		s.api.Payments.Service = &service.Payments{Provider: noticed{}}
		key := s.hire("boss", true, model.RoleOperator)
		send := func(headers ...string) *httptest.ResponseRecorder {
			return s.serve(s.request(method, path, "{}", headers...))
		}
		send("Authorization", "Bearer fs_forged")
		for _, forged := range []string{"", "Bearer fs_forged", "Bearer x.y.z", "Basic eDp5", s.token(model.RoleBuyer)} {
			refused := send("Authorization", forged)
			check.Same(t, path+": status for "+forged, refused.Code, http.StatusTooManyRequests)
			check.Same(t, path+": Retry-After is told", refused.Header().Get("Retry-After") != "", true)
		}
		timestamp := strconv.FormatInt(time.Now().Unix(), 10)
		for range 3 {
			right := send("Authorization", key, "X-Timestamp", timestamp, "X-Signature", sandbox.Sign(benchSecret, timestamp, []byte("{}")))
			if strings.HasSuffix(path, "/notices") {
				continue // it has signatures of its own
			}
			if right.Code == http.StatusTooManyRequests || right.Code == http.StatusUnauthorized {
				t.Errorf("%s: %d for a right secret", path, right.Code)
			}
		}
	}
}
