package handler

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
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

func (a *API) listStaff(c *gin.Context) {
	list, err := a.Staff.List(c.Request.Context())
	views := make([]accountView, len(list))
	for i, account := range list {
		views[i] = viewAccount(account, "")
	}
	answer(c, http.StatusOK, gin.H{"staff": views}, model.Accepted, err)
}

func (a *API) createStaff(c *gin.Context) {
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
	account, secret, verdict, invalid, err := a.Staff.Create(c.Request.Context(), body.Name, body.Kind == kindKey, body.Role, middleware.IdentityOf(c).UserID)
	if verdict == model.BadRequest {
		refuseInvalid(c, invalid)
		return
	}
	answer(c, http.StatusCreated, viewAccount(account, secret), verdict, err)
}

func (a *API) changeStaff(c *gin.Context) {
	var body struct {
		Role model.Role `json:"role"`
	}
	if !decode(c, maxBodyBytes, &body) {
		return
	}
	account, verdict, invalid, err := a.Staff.SetRole(c.Request.Context(), c.Param("name"), body.Role, middleware.IdentityOf(c).UserID)
	if verdict == model.BadRequest {
		refuseInvalid(c, invalid)
		return
	}
	answer(c, http.StatusOK, viewAccount(account, ""), verdict, err)
}

func (a *API) renewStaffSecret(c *gin.Context) {
	account, secret, verdict, err := a.Staff.NewSecret(c.Request.Context(), c.Param("name"), middleware.IdentityOf(c).UserID)
	answer(c, http.StatusOK, viewAccount(account, secret), verdict, err)
}

func (a *API) removeStaff(c *gin.Context) {
	account, verdict, err := a.Staff.Remove(c.Request.Context(), c.Param("name"), middleware.IdentityOf(c).UserID)
	answer(c, http.StatusOK, viewAccount(account, ""), verdict, err)
}

// listStaffOperations answers with a page of the changes of the staff.
func (a *API) listStaffOperations(c *gin.Context) { a.answerOperations(c, model.StaffSubject) }
