package model

// Role says what a user may do.
type Role string

// The roles.
const (
	RoleBuyer    Role = "buyer"
	RoleOperator Role = "operator"
)

// Identity is the user who makes a request, according to a verified token.
type Identity struct {
	UserID string
	Role   Role
}

// Account is a built-in user. Buyers whose tokens come from another issuer with the same secret have no Account.
type Account struct {
	ID           string
	Name         string
	PasswordHash string
	Role         Role
}

// MaxUserID is how long a user's id may be, in bytes.
const MaxUserID = 64

// ValidUserID reports whether s has the form of a user's id: letters, digits and . _ : - of ASCII. Ids stay strings
// everywhere: Redis's Lua stores numbers as doubles, so the id 2^53+1 would become another user's id.
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
