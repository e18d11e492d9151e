package model

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Role says what a user may do, see May.
type Role string

const (
	RoleBuyer    Role = "buyer"
	RoleViewer   Role = "viewer"   // reads in the console
	RoleSupport  Role = "support"  // also refunds orders and cancels them
	RoleOperator Role = "operator" // also changes sales, endpoints and the staff
	RoleHolds    Role = "holds"    // a shop's checkout, which settles, refunds and releases orders
	RoleCrowd    Role = "crowd"    // an invented buyer of a rehearsal
)

// ranks are the roles in their order. An unknown role has the rank 0.
var ranks = map[Role]int{RoleHolds: 1, RoleBuyer: 2, RoleCrowd: 2, RoleViewer: 3, RoleSupport: 4, RoleOperator: 5}

func Roles() []Role { return slices.Sorted(maps.Keys(ranks)) }

func (r Role) Valid() bool { return ranks[r] > 0 }

// May reports whether this role suffices where "least" is required. For RoleHolds, only RoleHolds and RoleOperator suffice.
func (r Role) May(least Role) bool {
	if least == RoleHolds {
		return r == RoleHolds || r == RoleOperator
	}
	return r.Valid() && ranks[r] >= ranks[least]
}

// Identity is who makes a request. The zero Identity is somebody who has not logged in.
type Identity struct {
	UserID string
	Role   Role
	Key    bool   // the sender has a key: a server of the shop
	Stamp  string // in a token of a built-in account of the staff: changes with the password; otherwise empty
}

// MayBuy reports whether the user may act as a buyer. A server with a key may not.
func (i Identity) MayBuy() bool { return !i.Key && i.Role.May(RoleBuyer) }

// Sees reports whether the routes for buyers show the sale or order with this id to the user. The crowd sees those of shadow
// sales, and everybody else sees the others.
func (i Identity) Sees(id string) bool { return IsShadow(id) == (i.Role == RoleCrowd) }

// Issuer is an OpenID Connect provider whose tokens are accepted.
type Issuer struct {
	Name    string // the claim iss
	Prefix  string // of the ids of the issuer's users
	KeysURL string // of the JSON Web Key Set; empty: discovery at Name finds it
}

// Account is a built-in user: a buyer, a member of the staff, or a server of the shop, which has a key instead of a password.
type Account struct {
	ID, Name     string
	PasswordHash string // argon2id; for a key, its SHA-256
	Role         Role
	CreatedAt    time.Time
	UsedAt       time.Time // when a key was last used, to about a minute; zero: not yet
}

// Prefixes of the ids of keys, and of the accounts of the staff except the built-in operator's. A name follows, which contains
// no colon.
const (
	OperatorPrefix = "operator:"
	KeyPrefix      = "key:"
)

// Subjects in the audit log: changes to the staff, to endpoints and to the shop.
const (
	StaffSubject    = "staff"
	EndpointSubject = "endpoints"
	ShopSubject     = "shop"
)

func (a Account) IsKey() bool { return strings.HasPrefix(a.ID, KeyPrefix) }

const MaxUserID = 64 // bytes

// ValidUserID reports whether s has the form of a user's id: 1 to MaxUserID letters, digits and . _ : - of ASCII. Ids are
// strings, because Lua in Redis would round large numbers.
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
