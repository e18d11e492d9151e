package auth

import (
	"time"

	"github.com/golang-jwt/jwt/v5"

	"flashsale/model"
	"flashsale/test/kit/check"
)

var (
	tokenSecret = []byte("0123456789abcdef0123456789abcdef")
	tokenTime   = time.Date(2026, 11, 11, 20, 0, 0, 123456789, time.UTC)
)

func at(instant time.Time) func() time.Time { return func() time.Time { return instant } }

// sign returns a token for an hour.
func sign(tokens *Tokens, who model.Identity) (string, error) {
	token, _, err := tokens.Sign(who, time.Hour)
	return token, err
}

// forged returns a token of another issuer with these claims.
func forged(claims jwt.MapClaims) string {
	return check.Must(jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(tokenSecret))
}

// tokenOf returns a buyer's token: ours, or another issuer's with the same claims.
func tokenOf(tokens *Tokens, issuer, user string) string {
	if issuer == "ours" {
		return check.Must(sign(tokens, model.Identity{UserID: user, Role: model.RoleBuyer}))
	}
	return forged(jwt.MapClaims{"sub": user, "exp": tokens.now().Add(time.Hour).Unix()})
}
