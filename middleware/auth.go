package middleware

import (
	"errors"
	"strings"

	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// TokenVerifier returns whose a token or a key is. An error that wraps model.ErrUnavailable means that this can't be found out
// now. With any other error, the token or key is not valid.
type TokenVerifier interface {
	Verify(token string) (model.Identity, error)
}

// Authenticate lets requests with a valid bearer token or key pass, and stores the identity for IdentityOf. If a token can't be
// checked now, the request fails with model.ErrUnavailable. Other requests get the same Unauthenticated for every reason, which
// does not help a forger.
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

// Shadows lets a request pass if its sender may see the ids in the route, see model.Identity.Sees. Otherwise the handler "unseen"
// answers as if nothing had that id. If no stage before has authenticated the sender, Shadows checks the token for an id of a
// shadow sale or of its order.
func Shadows(v TokenVerifier, unseen gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		for _, name := range [...]string{"sale", "campaign", "id"} { // the parameters with the id of a sale, a campaign or an order
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
				c.Writer.Header().Add("Vary", "Authorization") // so that no cache shows the answer to a stranger
			}
		}
	}
}

func identify(c *gin.Context, v TokenVerifier) (model.Identity, error) {
	scheme, token, _ := strings.Cut(HeaderOf(c, "Authorization"), " ")
	identity, err := v.Verify(token)
	if err == nil && !strings.EqualFold(scheme, "Bearer") {
		err = errors.New("the scheme is not Bearer")
	}
	return identity, err
}

// StillMay reports whether the sender of a request may still do what needs this role, since tokens, keys and accounts may end
// during a long answer. If the token can't be checked now, StillMay returns true.
func StillMay(c *gin.Context, v TokenVerifier, least model.Role) bool {
	identity, err := identify(c, v)
	return errors.Is(err, model.ErrUnavailable) || err == nil && identity.Role.May(least)
}

// IdentityOf returns the identity that Authenticate has stored, or the zero value.
func IdentityOf(c *gin.Context) model.Identity { return stateOf(c).identity }

// RequireBuyer refuses a request as Forbidden if its sender may not act as a buyer.
func RequireBuyer(c *gin.Context) {
	if !IdentityOf(c).MayBuy() {
		Refuse(c, Refusal{Verdict: model.Forbidden})
	}
}

// RequireRole refuses a request as Forbidden if the sender's role does not suffice, see Role.May.
func RequireRole(least model.Role) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !IdentityOf(c).Role.May(least) {
			Refuse(c, Refusal{Verdict: model.Forbidden})
		}
	}
}
