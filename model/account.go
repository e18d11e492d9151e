package model

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

// MaxUserID is how long a user's id may be, in bytes.
const MaxUserID = 64

// ValidUserID reports whether s has the form of a user's id: letters, digits and . _ : - of ASCII. Ids stay strings
// everywhere: to Redis's Lua a number is a double, and 2^53+1 would become another user.
func ValidUserID[T string | []byte](s T) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return 0 < len(s) && len(s) <= MaxUserID
}
