package middleware

import (
	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// PathChecker reports whether path was handed out to this user for this sale and still lives.
type PathChecker interface {
	Check(path, userID, saleID string) bool
}

// PathToken lets a purchase through only under the path that the authenticated user was given for the sale:
// the route's :path and :sale. The others get BadPath. It costs one hash and no look-up, so it stands in
// front of everything that does.
func PathToken(p PathChecker) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !p.Check(c.Param("path"), IdentityOf(c).UserID, c.Param("sale")) {
			Refuse(c, Refusal{Verdict: model.BadPath})
		}
	}
}
