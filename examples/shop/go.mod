module flashsale/examples/shop

go 1.26.0

require (
	github.com/coreos/go-oidc/v3 v3.21.0
	github.com/go-jose/go-jose/v4 v4.1.4
	github.com/golang-jwt/jwt/v5 v5.3.1
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
	golang.org/x/oauth2 v0.37.0
)
