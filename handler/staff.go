package handler

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
)

// The kinds of accounts, as the API names them.
const (
	kindPerson = "person"
	kindKey    = "key"
)

type accountView struct {
	Name      string     `json:"name"`
	Kind      string     `json:"kind"`
	Role      model.Role `json:"role"`
	CreatedAt *stamp     `json:"created_at,omitempty"`
	UsedAt    *stamp     `json:"used_at,omitempty"`
	Secret    string     `json:"secret,omitempty"`
}

func viewAccount(a model.Account, secret string) accountView {
	kind := kindPerson
	if a.IsKey() {
		kind = kindKey
	}
	return accountView{Name: a.Name, Kind: kind, Role: a.Role, CreatedAt: optional(a.CreatedAt), UsedAt: optional(a.UsedAt), Secret: secret}
}

// Staff shows the accounts and keys of the staff, and lets operators change them.
type Staff struct{ Service *service.Staff }

func (s *Staff) list(c *gin.Context) {
	list, err := s.Service.Store.Staff(c.Request.Context())
	view := func(a model.Account) accountView { return viewAccount(a, "") }
	answer(c, http.StatusOK, gin.H{"staff": each(list, view)}, model.Accepted, err)
}

func (s *Staff) create(c *gin.Context) {
	body := struct {
		Name string     `json:"name"`
		Kind string     `json:"kind"`
		Role model.Role `json:"role"`
	}{Kind: kindPerson}
	if !decode(c, maxBodyBytes, &body) {
		return
	}
	if body.Kind != kindPerson && body.Kind != kindKey {
		refuseInvalid(c, &service.Invalid{Field: "kind", Reason: notAChoice, Value: kindPerson + ", " + kindKey})
		return
	}
	account, secret, verdict, invalid, err := s.Service.Create(c.Request.Context(), body.Name, body.Kind == kindKey, body.Role, userOf(c))
	answerChange(c, http.StatusCreated, viewAccount(account, secret), verdict, invalid, err)
}

type roleBody struct {
	Role model.Role `json:"role"`
}

func (s *Staff) change(c *gin.Context, body roleBody) {
	account, verdict, invalid, err := s.Service.SetRole(c.Request.Context(), c.Param("name"), body.Role, userOf(c))
	answerChange(c, http.StatusOK, viewAccount(account, ""), verdict, invalid, err)
}

func (s *Staff) renewSecret(c *gin.Context) {
	account, secret, verdict, err := s.Service.NewSecret(c.Request.Context(), c.Param("name"), userOf(c))
	answer(c, http.StatusOK, viewAccount(account, secret), verdict, err)
}

func (s *Staff) remove(c *gin.Context) {
	account, verdict, err := s.Service.Remove(c.Request.Context(), c.Param("name"), userOf(c))
	answer(c, http.StatusOK, viewAccount(account, ""), verdict, err)
}
