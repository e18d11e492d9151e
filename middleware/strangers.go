package middleware

import (
	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// Strangers charges a request to the limits if it is refused and its sender has not shown a right secret: a token of the staff, a
// key or a signature. Requests with a right secret are never charged, so strangers can't keep them out. The stage stands before
// the stages that check secrets, on routes that have no limit before it. Outcome: that of the next stages, or that of the first
// limit that does not let a charged request pass.
func Strangers(limits ...gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Next()
		own, refused := RefusalOf(c)
		who := IdentityOf(c)
		if !refused || stateOf(c).signed || who.Key || who.Role.May(model.RoleHolds) || who.Role.May(model.RoleViewer) {
			return
		}
		for _, limit := range limits {
			if limit(c); FailureOf(c) != nil {
				return
			}
			if now, _ := RefusalOf(c); now != own {
				return
			}
		}
	}
}

// Signed marks a request with a right signature, so that Strangers does not charge it.
func Signed(c *gin.Context) { stateOf(c).signed = true }
