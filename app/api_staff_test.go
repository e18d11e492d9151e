package app_test

import (
	"strings"
	"testing"

	"flashsale/app"
	"flashsale/model"
)

const adminStaff = "/api/v1/admin/staff"

// staffAccount is a member of the staff, or a key.
type staffAccount struct {
	Name   string     `json:"name"`
	Kind   string     `json:"kind"`
	Role   model.Role `json:"role"`
	Secret string     `json:"secret"`
	UsedAt string     `json:"used_at"`
	MadeAt string     `json:"created_at"`
}

func (s *server) hire(name, kind string, role model.Role) (made staffAccount) {
	s.t.Helper()
	s.operator().call("POST", adminStaff, fields{"name": name, "kind": kind, "role": role}).want(201).read(&made)
	return made
}

// holding is somebody with this token or key.
func (s *server) holding(token string) *client {
	c := s.anyone()
	c.token = token
	return c
}

// The life of an account of the staff: it is made, logs in, gets another role and another password, and is removed. What it
// may do follows at once, also for tokens from before; a new password ends them.
func TestStaffLife(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.hire("olga", "person", model.RoleViewer)
	logIn := func(password string) *answer {
		return s.anyone().call("POST", "/api/v1/sessions", fields{"name": "olga", "password": password})
	}
	in := logIn(made.Secret).want(200).contains(`"id":"operator:olga"`, `"role":"viewer"`)
	olga := s.holding(in.text("token"))
	olga.get(adminSales).want(200)
	olga.call("POST", adminSales, newSale(nil)).refused(403, "forbidden")
	s.operator().call("PATCH", adminStaff+"/olga", fields{"role": "operator"}).want(200)
	olga.call("POST", adminSales, newSale(nil)).want(201)

	var renewed staffAccount
	s.operator().call("POST", adminStaff+"/olga/secret", nil).want(200).read(&renewed)
	logIn(made.Secret).refused(401, "unauthenticated")
	olga.call("GET", adminSales, nil).refused(401, "unauthenticated")
	olga = s.holding(logIn(renewed.Secret).want(200).text("token"))
	if list := string(olga.get(adminStaff).want(200).body); !strings.Contains(list, `"olga"`) || strings.Contains(list, "secret") || strings.Contains(list, renewed.Secret) {
		t.Errorf("the list is %s", list)
	}
	olga.get("/api/v1/admin/staff-operations").want(200).contains("operator:olga", `"create"`, "viewer -\\u003e operator", "a new secret", `"actor":"admin"`)

	s.operator().call("DELETE", adminStaff+"/olga", nil).want(200)
	olga.call("GET", adminSales, nil).refused(401, "unauthenticated")
	logIn(renewed.Secret).refused(401, "unauthenticated")
	for _, call := range [][2]string{{"PATCH", "/olga"}, {"DELETE", "/olga"}, {"POST", "/olga/secret"}} {
		body := any(nil)
		if call[0] == "PATCH" {
			body = fields{"role": "viewer"}
		}
		s.operator().call(call[0], adminStaff+call[1], body).refused(404, "not_found")
	}
}

// A key stands in place of a token. It does not log in.
func TestKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	key := s.hire("shop", "key", model.RoleSupport)
	shop := s.holding(key.Secret)
	shop.get(adminSales).want(200)
	shop.call("POST", adminSales, newSale(nil)).refused(403, "forbidden")
	shop.call("GET", "/api/v1/orders", nil).refused(403, "forbidden")
	s.holding(s.hire("boss", "key", model.RoleOperator).Secret).call("GET", "/api/v1/orders", nil).refused(403, "forbidden")
	s.anyone().call("POST", "/api/v1/sessions", fields{"name": "shop", "password": key.Secret}).refused(401, "unauthenticated")
	var list struct{ Staff []staffAccount }
	s.operator().get(adminStaff).want(200).read(&list)
	if len(list.Staff) != 3 || list.Staff[2].Kind != "key" || list.Staff[2].UsedAt == "" || list.Staff[0].MadeAt == "" {
		t.Errorf("the list is %+v", list.Staff)
	}
	s.operator().call("DELETE", adminStaff+"/shop", nil).want(200)
	shop.call("GET", adminSales, nil).refused(401, "unauthenticated")
}

// What is wrong is refused with a reason and changes nothing.
func TestWrongStaff(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.hire("olga", "person", model.RoleViewer)
	for _, body := range []fields{
		{"name": "x", "role": "viewer"},
		{"name": "peter", "role": "buyer"},
		{"name": "peter"},
		{"name": "peter", "role": "viewer", "kind": "robot"},
		{"name": "peter", "role": "viewer", "password": "of my own"},
	} {
		s.operator().call("POST", adminStaff, body).refused(400, "bad_request")
	}
	for _, name := range []string{"olga", "admin"} {
		s.operator().call("POST", adminStaff, fields{"name": name, "role": "viewer"}).refused(409, "name_taken")
	}
	s.anyone().call("POST", "/api/v1/users", fields{"name": "olga", "password": "correct horse"}).refused(409, "name_taken")
	s.operator().call("PATCH", adminStaff+"/olga", fields{"role": "buyer"}).refused(400, "bad_request")
	for _, call := range [][2]string{{"PATCH", ""}, {"DELETE", ""}, {"POST", "/secret"}} {
		body := any(nil)
		if call[0] == "PATCH" {
			body = fields{"role": "viewer"}
		}
		s.operator().call(call[0], adminStaff+"/admin"+call[1], body).refused(403, "forbidden")
	}
	s.operator().get(adminStaff).want(200).contains(`"olga"`, `"viewer"`)
}

// No token from before a new password, or from before the account was removed, is of use on any instance, even if an
// account of the same name is made again.
func TestTokensOfFormerAccounts(t *testing.T) {
	t.Parallel()
	settings := settingsOf(t)
	first, second := boot(t, settings, app.Options{Logs: t.Output()}), boot(t, settings, app.Options{Logs: t.Output()})
	logIn := func(password string) (token string) {
		t.Helper()
		in := first.anyone().call("POST", "/api/v1/sessions", fields{"name": "olga", "password": password}).want(200).text("token")
		for _, s := range []*server{first, second} {
			s.eventually("the token is accepted", func() bool { return s.holding(in).call("GET", adminSales, nil).status == 200 })
		}
		return in
	}
	dead := func(what, token string) {
		t.Helper()
		first.holding(token).call("GET", adminSales, nil).refused(401, "unauthenticated")
		second.eventually(what, func() bool { return second.holding(token).call("GET", adminSales, nil).status == 401 })
	}
	remove := func() { first.operator().call("DELETE", adminStaff+"/olga", nil).want(200) }

	token := logIn(first.hire("olga", "person", model.RoleOperator).Secret)
	remove()
	made := first.hire("olga", "person", model.RoleViewer)
	dead("the token from before the removal is refused", token)
	token = logIn(made.Secret)
	var renewed staffAccount
	first.operator().call("POST", adminStaff+"/olga/secret", nil).want(200).read(&renewed)
	dead("the token from before the new password is refused", token)
	token = logIn(renewed.Secret)
	remove()
	first.hire("olga", "key", model.RoleOperator)
	dead("a key of the same name has no tokens", token)

	// A token that the engine did not issue is of none of its accounts, whoever signed it.
	for _, user := range []string{"operator:olga", "key:olga", "admin"} {
		first.as(user, model.RoleOperator).call("GET", adminSales, nil).refused(401, "unauthenticated")
	}
	first.as("boss", model.RoleOperator).get(adminSales)

	// A start with the password that the operator has leaves the tokens as they are; one with another password ends them.
	boot(t, settings, app.Options{Logs: t.Output()})
	first.operator().get(adminSales)
	settings.AdminPassword += " staple"
	third := boot(t, settings, app.Options{Logs: t.Output()})
	third.operator().get(adminSales)
	for _, s := range []*server{first, second} {
		s.eventually("the operator's token is refused", func() bool { return s.operator().call("GET", adminSales, nil).status == 401 })
	}
	settings.Accounts = "off"
	off := boot(t, settings, app.Options{Logs: t.Output()})
	off.holding(third.operatorToken).call("GET", adminSales, nil).refused(401, "unauthenticated")
	off.as("boss", model.RoleOperator).get(adminSales)
}
