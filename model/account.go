package model

import "regexp"

// Role says what a user may do.
type Role string

// The roles.
const (
	RoleBuyer    Role = "buyer"
	RoleOperator Role = "operator"
)

// Identity is who makes a request, as a checked token says.
type Identity struct {
	UserID string
	Role   Role
}

// Account is a built-in user. Buyers may also come from any issuer that shares the secret.
type Account struct {
	ID           string
	Name         string
	PasswordHash string
	Role         Role
}

var userID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// ValidUserID reports whether s has the form of a user's id. Ids stay strings everywhere: to Redis's
// Lua a number is a double, and 2^53+1 would become another user.
func ValidUserID(s string) bool { return userID.MatchString(s) }
