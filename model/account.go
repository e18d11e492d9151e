package model

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Role says what a user may do.
type Role string

// The roles. Buyer, viewer, support and operator: each may do what those before it may. RoleHolds may settle and release orders
// and nothing else; an operator may do that too. RoleCrowd buys shadow sales and nothing else.
const (
	RoleBuyer    Role = "buyer"
	RoleViewer   Role = "viewer"   // sees all sales, orders and operations
	RoleSupport  Role = "support"  // refunds orders and cancels them
	RoleOperator Role = "operator" // everything
	RoleHolds    Role = "holds"    // of the key with which the shop's checkout settles and releases orders
	RoleCrowd    Role = "crowd"    // a made-up buyer of a rehearsal, for whom there are shadow sales only
)

// ranks are the roles in their order. An unknown role has the rank 0.
var ranks = map[Role]int{RoleHolds: 1, RoleBuyer: 2, RoleCrowd: 2, RoleViewer: 3, RoleSupport: 4, RoleOperator: 5}

// Roles returns all roles.
func Roles() []Role { return slices.Sorted(maps.Keys(ranks)) }

// Valid reports whether the role exists.
func (r Role) Valid() bool { return ranks[r] > 0 }

// May reports whether a user with this role may do what needs at least the role least.
func (r Role) May(least Role) bool {
	if least == RoleHolds {
		return r == RoleHolds || r == RoleOperator
	}
	return r.Valid() && ranks[r] >= ranks[least]
}

// Identity is the user who makes a request, according to a verified token.
type Identity struct {
	UserID string
	Role   Role
	Key    bool   // a server of the shop, by its key
	Stamp  string // of the account of the staff that logged in; empty: the user has no such account
}

// MayBuy reports whether the user may act as a buyer. A server may not, whatever the role of its key.
func (i Identity) MayBuy() bool { return !i.Key && i.Role.May(RoleBuyer) }

// Sees reports whether the sale or order with this id exists for the user: a shadow sale for the crowd of a rehearsal only, and
// any other sale for everybody else. The zero Identity is a stranger.
func (i Identity) Sees(id string) bool { return IsShadow(id) == (i.Role == RoleCrowd) }

// Issuer is an OpenID Connect provider outside, whose tokens are accepted.
type Issuer struct {
	Name    string // the claim iss
	Prefix  string // of its users' ids, so that no two issuers share a user
	KeysURL string // of its JSON Web Key Set; empty: by discovery, at Name
}

// Account is a built-in user: a buyer, a member of the staff, or a server of the shop, which has a key instead of a
// password. Buyers whose tokens come from another issuer with the same secret have no Account.
type Account struct {
	ID           string
	Name         string
	PasswordHash string // of a key, its SHA-256
	Role         Role
	CreatedAt    time.Time
	UsedAt       time.Time // of a key, to about a minute; zero: never
}

// The ids of staff and keys are their names behind these prefixes, so that the log of operations is readable. No buyer's
// name contains a colon.
const (
	OperatorPrefix = "operator:"
	KeyPrefix      = "key:"
)

// The subjects of changes of the staff and of endpoints in the log of operations.
const (
	StaffSubject    = "staff"
	EndpointSubject = "endpoints"
)

// IsKey reports whether the account is a key.
func (a Account) IsKey() bool { return strings.HasPrefix(a.ID, KeyPrefix) }

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
