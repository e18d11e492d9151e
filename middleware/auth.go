package middleware

import (
	"strings"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// TokenVerifier says whose token it is. Any error means that it is nobody's.
type TokenVerifier interface {
	Verify(token string) (model.Identity, error)
}

// Authenticate lets requests with a good bearer token through and keeps the identity for IdentityOf. All
// others get the same Unauthenticated, so that the answer doesn't tell a forger what to mend.
func Authenticate(v TokenVerifier) gin.HandlerFunc {
	return func(c *gin.Context) {
		var header string
		if values := c.Request.Header["Authorization"]; len(values) > 0 {
			header = values[0]
		}
		scheme, token, _ := strings.Cut(header, " ")
		identity, err := v.Verify(token)
		if err != nil || !strings.EqualFold(scheme, "Bearer") {
			Refuse(c, Refusal{Verdict: model.Unauthenticated})
			return
		}
		stateOf(c).identity = identity
	}
}

// IdentityOf gives who makes the request; the zero value if nobody was authenticated.
func IdentityOf(c *gin.Context) model.Identity { return stateOf(c).identity }

// RequireRole lets only users of this role through; the others, known or not, get Forbidden.
func RequireRole(role model.Role) gin.HandlerFunc {
	return func(c *gin.Context) {
		if IdentityOf(c).Role != role {
			Refuse(c, Refusal{Verdict: model.Forbidden})
		}
	}
}
