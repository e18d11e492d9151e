package middleware

import (
	"errors"
	"strings"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// TokenVerifier returns the identity of the user whom a token was issued to. Any error means that the token is not
// valid, but model.ErrUnavailable that it can't be checked now.
type TokenVerifier interface {
	Verify(token string) (model.Identity, error)
}

// Authenticate lets requests with a valid bearer token pass and stores the identity for IdentityOf. All others get the
// same Unauthenticated, so that the answer does not help a forger.
func Authenticate(v TokenVerifier) gin.HandlerFunc {
	return func(c *gin.Context) {
		identity, err := identify(c, v)
		switch {
		case errors.Is(err, model.ErrUnavailable):
			Fail(c, err)
		case err != nil:
			Refuse(c, Refusal{Verdict: model.Unauthenticated, Why: err})
		default:
			stateOf(c).identity = identity
		}
	}
}

// shadowed are the names of the parameters in routes that have the id of a sale, a campaign or an order.
var shadowed = []string{"sale", "campaign", "id"}

// Shadows keeps shadow sales and their orders from everybody but the crowd of a rehearsal, and all others from that crowd:
// unseen answers as if there were no such sale. A route that asks for a log-in has Shadows behind it. On other routes the crowd
// brings its token unasked.
func Shadows(v TokenVerifier, unseen gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		for _, name := range shadowed {
			id, ok := c.Params.Get(name)
			if !ok {
				continue
			}
			who := IdentityOf(c)
			if model.IsShadow(id) && who == (model.Identity{}) {
				if is, err := identify(c, v); err == nil {
					who = is
				}
			}
			switch {
			case !who.Sees(id):
				unseen(c)
				c.Abort()
			case model.IsShadow(id):
				c.Writer.Header().Add("Vary", "Authorization") // so that no cache shows it to a stranger
			}
		}
	}
}

var errNotBearer = errors.New("the scheme is not Bearer")

func identify(c *gin.Context, v TokenVerifier) (model.Identity, error) {
	scheme, token, _ := strings.Cut(HeaderOf(c, "Authorization"), " ")
	identity, err := v.Verify(token)
	if err == nil && !strings.EqualFold(scheme, "Bearer") {
		err = errNotBearer
	}
	return identity, err
}

// StillMay reports whether the sender of a request may still do what needs this role. An answer that takes long asks again
// and again, since tokens, keys and accounts end meanwhile. While that can't be told, the answer stays yes.
func StillMay(c *gin.Context, v TokenVerifier, least model.Role) bool {
	identity, err := identify(c, v)
	return errors.Is(err, model.ErrUnavailable) || err == nil && identity.Role.May(least)
}

// IdentityOf returns the identity of the user who makes the request, or the zero value if nobody was authenticated.
func IdentityOf(c *gin.Context) model.Identity { return stateOf(c).identity }

// RequireBuyer lets only users pass who may act as buyers. All others get Forbidden: a server with a key, and whoever has no
// role for it.
func RequireBuyer(c *gin.Context) {
	if !IdentityOf(c).MayBuy() {
		Refuse(c, Refusal{Verdict: model.Forbidden})
	}
}

// RequireRole lets only users pass who may do what needs this role. All others, authenticated or not, get Forbidden.
func RequireRole(least model.Role) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !IdentityOf(c).Role.May(least) {
			Refuse(c, Refusal{Verdict: model.Forbidden})
		}
	}
}
