package middleware

import (
	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// PathChecker reports whether path was issued to this user for this sale and has not expired.
type PathChecker interface {
	Check(path, userID, saleID string) bool
}

// PathToken lets a purchase pass only under a path that the authenticated user was given for the sale. Path and sale
// are the route's :path and :sale. All other purchases get BadPath. The check costs a hash and no look-up.
func PathToken(p PathChecker) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !p.Check(c.Param("path"), IdentityOf(c).UserID, c.Param("sale")) {
			Refuse(c, Refusal{Verdict: model.BadPath})
		}
	}
}
