package middleware

import (
	"errors"
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// tokens knows who has which token.
type tokens map[string]model.Identity

func (k tokens) Verify(token string) (model.Identity, error) {
	who, ok := k[token]
	if !ok {
		return model.Identity{}, errors.New("unknown token " + token)
	}
	return who, nil
}

func TestAuthenticate(t *testing.T) {
	buyer := model.Identity{UserID: "u-1", Role: model.RoleBuyer}
	tests := map[string]struct {
		authorization string
		want          string
		identity      model.Identity
	}{
		"a good token":         {"Bearer good", "ok", buyer},
		"the scheme's case":    {"bEARER good", "ok", buyer},
		"none":                 {"", "unauthenticated after 0s", model.Identity{}},
		"a bad token":          {"Bearer bad", "unauthenticated after 0s", model.Identity{}},
		"no scheme":            {"good", "unauthenticated after 0s", model.Identity{}},
		"another scheme":       {"Basic good", "unauthenticated after 0s", model.Identity{}},
		"a scheme and no more": {"Bearer", "unauthenticated after 0s", model.Identity{}},
		"two spaces":           {"Bearer  good", "unauthenticated after 0s", model.Identity{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var identity model.Identity
			engine := newEngine(t, func(c *gin.Context) {
				c.Next()
				identity = IdentityOf(c)
			}, Authenticate(tokens{"good": buyer}))
			if got := serve(engine, newRequest(t, "Authorization", tc.authorization)).Body.String(); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if identity != tc.identity {
				t.Errorf("identity %+v, want %+v", identity, tc.identity)
			}
		})
	}
}

func TestRequireRole(t *testing.T) {
	tests := map[string]struct {
		who  model.Identity
		want string
	}{
		"an operator": {model.Identity{UserID: "admin", Role: model.RoleOperator}, "ok"},
		"a buyer":     {model.Identity{UserID: "admin", Role: model.RoleBuyer}, "forbidden after 0s"},
		"nobody":      {model.Identity{}, "forbidden after 0s"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			engine := newEngine(t, as(tc.who), RequireRole(model.RoleOperator))
			if got := serve(engine, newRequest(t)).Body.String(); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
