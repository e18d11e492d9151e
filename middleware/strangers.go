package middleware

import (
	"github.com/gin-gonic/gin"

	"flashsale/model"
)

// Strangers charges a refused request to the limits, unless the sender has shown a valid signature, key or token of the staff. It
// stands before the stages that check these. The answer is that of the next stages or, if a limit refuses the request as well, that
// of the first such limit.
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

// Signed marks a request as having a valid signature, for Strangers.
func Signed(c *gin.Context) { stateOf(c).signed = true }
