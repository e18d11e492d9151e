package model

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Role says what a user may do. Of buyer, viewer, support and operator, each may do all that the ones before it may.
type Role string

const (
	RoleBuyer    Role = "buyer"
	RoleViewer   Role = "viewer"   // reads all that the console shows
	RoleSupport  Role = "support"  // also refunds orders and cancels them
	RoleOperator Role = "operator" // everything
	RoleHolds    Role = "holds"    // only reads, settles, refunds and releases orders, for the shop's checkout; operators may too
	RoleCrowd    Role = "crowd"    // an invented buyer of a rehearsal, who sees shadow sales only
)

// ranks are the roles in their order. An unknown role has the rank 0.
var ranks = map[Role]int{RoleHolds: 1, RoleBuyer: 2, RoleCrowd: 2, RoleViewer: 3, RoleSupport: 4, RoleOperator: 5}

func Roles() []Role { return slices.Sorted(maps.Keys(ranks)) }

func (r Role) Valid() bool { return ranks[r] > 0 }

// May reports whether this role suffices where "least" is required. Where RoleHolds is required, only it and operator suffice.
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
	Key    bool   // a server of the shop makes the request, with its key
	Stamp  string // in a token of a built-in account of the staff: changes with the password; otherwise empty
}

// MayBuy reports whether the user may act as a buyer. A server may not, whatever role its key has.
func (i Identity) MayBuy() bool { return !i.Key && i.Role.May(RoleBuyer) }

// Sees reports whether the sale or order with this id exists for the user: a shadow sale for the crowd of a rehearsal only, and
// any other sale for everybody else. The zero Identity is somebody who has not logged in.
func (i Identity) Sees(id string) bool { return IsShadow(id) == (i.Role == RoleCrowd) }

// Issuer is an external OpenID Connect provider whose tokens are accepted.
type Issuer struct {
	Name    string // the claim iss
	Prefix  string // of the ids of the issuer's users, so that no two issuers share a user
	KeysURL string // of the JSON Web Key Set; empty: discovery at Name finds it
}

// Account is a built-in user: a buyer, a member of the staff, or a server of the shop, which has a key instead of a
// password. A user who logs in at an issuer, or comes with a token of the shop, has no Account.
type Account struct {
	ID, Name     string
	PasswordHash string // argon2id; for a key, its SHA-256
	Role         Role
	CreatedAt    time.Time
	UsedAt       time.Time // when a key was last used, to about a minute; zero: never
}

// The id of a key, or of an account of the staff, is its name behind one of these prefixes, so that the audit log is readable.
// Of these, only the built-in operator's id has no prefix. No built-in user's name contains a colon.
const (
	OperatorPrefix = "operator:"
	KeyPrefix      = "key:"
)

// The subjects, in the audit log, of changes to the staff and to endpoints.
const (
	StaffSubject    = "staff"
	EndpointSubject = "endpoints"
)

func (a Account) IsKey() bool { return strings.HasPrefix(a.ID, KeyPrefix) }

const MaxUserID = 64 // bytes

// ValidUserID reports whether s has the form of a user's id: 1 to MaxUserID letters, digits and . _ : - of ASCII. Ids stay
// strings everywhere: Lua in Redis stores numbers as doubles, so the number 2^53+1 would become another user's id.
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
