package middleware

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gin-gonic/gin"

	"flashsale/model"
	"flashsale/service"
	"flashsale/test/kit/check"
)

func TestRefuseAndFail(t *testing.T) {
	broken := errors.New("broken")
	refusal := Refusal{Verdict: model.Paused, Invalid: &service.Invalid{Reason: "for lunch"}}
	wrapped := fmt.Errorf("purchase: %w", refusal)
	type test struct {
		stage   gin.HandlerFunc
		refusal Refusal
		failure error
		reached bool
	}
	check.Each(t, map[string]test{
		"passed on":         {func(*gin.Context) {}, Refusal{}, nil, true},
		"refused":           {func(c *gin.Context) { Refuse(c, refusal) }, refusal, nil, false},
		"failed":            {func(c *gin.Context) { Fail(c, broken) }, Refusal{}, broken, false},
		"a wrapped refusal": {func(c *gin.Context) { Fail(c, wrapped) }, refusal, nil, false},
		"the last counts":   {func(c *gin.Context) { Refuse(c, refusal); Fail(c, broken) }, Refusal{}, broken, false},
	}, func(t *testing.T, tc test) {
		var got Refusal
		var refused, reached bool
		var failure error
		engine := gin.New()
		engine.Use(func(c *gin.Context) {
			c.Next()
			got, refused = RefusalOf(c)
			failure = FailureOf(c)
		}, tc.stage)
		engine.GET("/sales/:sale/:path", func(*gin.Context) { reached = true })
		serve(engine, newRequest(t))
		check.Same(t, "refusal", got, tc.refusal)
		check.Same(t, "refused", refused, tc.refusal != Refusal{})
		check.Same(t, "the failure is the wanted one", errors.Is(failure, tc.failure), true)
		check.Same(t, "handler reached", reached, tc.reached)
	})
}
