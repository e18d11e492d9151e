package middleware

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/test/kit/check"
)

// tokens are the valid tokens with their users.
type tokens map[string]model.Identity

func (k tokens) Verify(token string) (model.Identity, error) {
	who, ok := k[token]
	if !ok {
		return model.Identity{}, errors.New("unknown token " + token)
	}
	return who, nil
}

// Only a valid token behind the scheme Bearer, in any case, is accepted.
func FuzzAuthorization(f *testing.F) {
	for _, seed := range []string{
		"Bearer good", "bEARER good", "", "Bearer bad", "good", "Basic good", "Bearer", "Bearer  good", "Bearer good ", "Bearer\tgood",
		"Bearer good, Bearer good", "Bearer\x00good",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		var who model.Identity
		engine := newEngine(func(c *gin.Context) {
			c.Next()
			who = IdentityOf(c)
		}, Authenticate(tokens{"good": buyer}))
		r := newRequest(t)
		r.Header["Authorization"] = []string{header}
		body, want := serve(engine, r).Body.String(), "unauthenticated after 0s"
		valid := len(header) == len("Bearer good") && strings.EqualFold(header[:6], "bearer") && header[6:] == " good"
		if valid {
			want = "ok"
		}
		check.Same(t, header, body, want)
		check.Same(t, header+": the user is known", who == buyer, valid)
		check.Same(t, header+": no user", who == model.Identity{}, !valid)
	})
}

// Whether a token is valid can't be told while the list of the staff can't be read.
func TestAuthenticateLater(t *testing.T) {
	engine := newEngine(Authenticate(away{}))
	check.Same(t, "answer", answer(t, engine), "failed: "+model.ErrUnavailable.Error())
}

type away struct{}

func (away) Verify(string) (model.Identity, error) { return model.Identity{}, model.ErrUnavailable }

func TestRequireRole(t *testing.T) {
	for role, may := range map[model.Role][]model.Role{
		model.RoleOperator: {model.RoleViewer, model.RoleSupport, model.RoleOperator},
		model.RoleSupport:  {model.RoleViewer, model.RoleSupport},
		model.RoleViewer:   {model.RoleViewer},
		model.RoleBuyer:    {}, "": {}, "root": {},
	} {
		for _, least := range []model.Role{model.RoleViewer, model.RoleSupport, model.RoleOperator} {
			want := "forbidden after 0s"
			if slices.Contains(may, least) {
				want = "ok"
			}
			engine := newEngine(as(model.Identity{UserID: "admin", Role: role}), RequireRole(least))
			check.Same(t, string(role)+" where "+string(least)+" is needed", answer(t, engine), want)
		}
	}
}
