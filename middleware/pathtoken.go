package middleware

import (
	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// PathChecker reports whether path was issued to this user for this sale and has not expired.
type PathChecker interface {
	Check(path, userID, saleID string) bool
}

// PathToken lets a purchase pass if the route's :path is valid for the authenticated user and the route's :sale. Otherwise it
// refuses the purchase as BadPath.
func PathToken(p PathChecker) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !p.Check(c.Param("path"), IdentityOf(c).UserID, c.Param("sale")) {
			Refuse(c, Refusal{Verdict: model.BadPath})
		}
	}
}
