package service

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"flashsale/model"
	"flashsale/service/auth"
)

const (
	// keyHead begins every key, so that a key differs from a token, and a scanner can find a key that has leaked.
	keyHead = "fs_"
	// rosterAge is how long an instance uses its list of the staff before it reads the list again. Until then it may still accept
	// a member or a key that was removed.
	rosterAge     = time.Second
	rosterTimeout = 2 * time.Second // for each reading of the list, and each recording of a key's use
	usePeriod     = time.Minute     // the least time between two recordings of a key's use by an instance
)

// StaffStore keeps the accounts of the staff and the keys.
type StaffStore interface {
	Staff(ctx context.Context) ([]model.Account, error)
	CreateStaff(ctx context.Context, a model.Account, actor string) (ok bool, err error)
	ChangeStaff(ctx context.Context, name string, role model.Role, hash, actor string) (account model.Account, ok bool, err error)
	RemoveStaff(ctx context.Context, name, actor string) (account model.Account, ok bool, err error)
	Used(ctx context.Context, id string) error
}

// Staff manages the accounts of those who run the shop, and the keys of its servers. It also finds out whose a token or a key is.
type Staff struct {
	Off       bool // tokens of the accounts are refused; keys are valid
	Store     StaffStore
	Passwords *auth.Passwords
	Tokens    *auth.Tokens
	Now       func() time.Time

	reading sync.Mutex // held while the list is read or marked as outdated
	roster  atomic.Pointer[roster]
	used    sync.Map // by id, when the use of a key was last recorded
}

type roster struct {
	readAt time.Time
	byID   map[string]model.Account
	byHash map[string]model.Account // keys only
}

// Create makes an account with a password, or a key. The secret is returned only here, since only its hash is stored. The verdict
// is Accepted; NameTaken; or BadRequest with the invalid field. The error wraps model.ErrUnavailable if too many passwords
// already wait to be hashed.
func (s *Staff) Create(
	ctx context.Context, name string, key bool, role model.Role, actor string,
) (account model.Account, secret string, verdict model.Verdict, invalid *Invalid, err error) {
	switch {
	case !accountName.MatchString(name):
		return account, "", model.BadRequest, &Invalid{Field: "name", Reason: BadName, Min: minName, Max: maxName}, nil
	case strings.EqualFold(name, OperatorName):
		return account, "", model.NameTaken, nil, nil
	case !role.May(model.RoleViewer) && (!key || role != model.RoleHolds): // RoleHolds is for a checkout's key, not for a person
		return account, "", model.BadRequest, &Invalid{Field: "role", Reason: BadRole}, nil
	}
	account = model.Account{ID: model.OperatorPrefix + name, Name: name, Role: role}
	if key {
		account.ID = model.KeyPrefix + name
	}
	if secret, account.PasswordHash, err = s.secretOf(ctx, account); err != nil {
		return account, "", "", nil, err
	}
	ok, err := s.Store.CreateStaff(ctx, account, actor)
	if err != nil || !ok {
		return account, "", model.NameTaken, nil, err
	}
	s.forget()
	return account, secret, model.Accepted, nil, nil
}

// secretOf makes a new password or key of an account, and its hash.
func (s *Staff) secretOf(ctx context.Context, account model.Account) (secret, hash string, err error) {
	if account.IsKey() {
		secret = keyHead + account.Name + "_" + rand.Text()
		return secret, hashKey(secret), nil
	}
	secret = rand.Text()[:model.IDLength]
	hash, err = s.Passwords.Hash(ctx, secret)
	return secret, hash, err
}

// hashKey returns the hash of a key. A fast hash is enough, since a key has 130 random bits.
func hashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// SetRole gives an account or a key another role. The verdict is Accepted; NotFound; BadRequest with the invalid field; or
// Forbidden for the built-in operator.
func (s *Staff) SetRole(ctx context.Context, name string, role model.Role, actor string) (model.Account, model.Verdict, *Invalid, error) {
	if !role.May(model.RoleViewer) {
		return model.Account{}, model.BadRequest, &Invalid{Field: "role", Reason: BadRole}, nil
	}
	account, verdict, err := s.change(name, func() (model.Account, bool, error) { return s.Store.ChangeStaff(ctx, name, role, "", actor) })
	return account, verdict, nil, err
}

// NewSecret replaces the password of an account, or a key, and returns the new password or key. The verdict is Accepted;
// NotFound; or Forbidden for the built-in operator. The error wraps model.ErrUnavailable if too many passwords already wait to be
// hashed.
func (s *Staff) NewSecret(ctx context.Context, name, actor string) (account model.Account, secret string, verdict model.Verdict, err error) {
	list, err := s.Store.Staff(ctx)
	i := slices.IndexFunc(list, func(a model.Account) bool { return a.Name == name })
	if err != nil || i < 0 {
		return account, "", model.NotFound, err
	}
	secret, hash, err := s.secretOf(ctx, list[i])
	if err != nil {
		return account, "", "", err
	}
	account, verdict, err = s.change(name, func() (model.Account, bool, error) { return s.Store.ChangeStaff(ctx, name, "", hash, actor) })
	return account, secret, verdict, err
}

// Remove removes an account or a key. The verdict is Accepted; NotFound; or Forbidden for the built-in operator.
func (s *Staff) Remove(ctx context.Context, name, actor string) (model.Account, model.Verdict, error) {
	return s.change(name, func() (model.Account, bool, error) { return s.Store.RemoveStaff(ctx, name, actor) })
}

// change runs a change of an account, or returns Forbidden for the built-in operator, see EnsureOperator.
func (s *Staff) change(name string, change func() (model.Account, bool, error)) (model.Account, model.Verdict, error) {
	if strings.EqualFold(name, OperatorName) {
		return model.Account{}, model.Forbidden, nil
	}
	account, ok, err := change()
	s.forget()
	return account, acceptedIf(ok, model.NotFound), err
}

// Verify returns whose a token or a key is. The error wraps model.ErrUnavailable if this can't be found out now. Otherwise it
// wraps auth.ErrBadToken: the token or key is not valid. A token of a built-in account of the staff is valid only while the list
// has the account with the same password. Its role is that in the list.
func (s *Staff) Verify(token string) (model.Identity, error) {
	if strings.HasPrefix(token, keyHead) {
		list, err := s.list()
		if err != nil {
			return model.Identity{}, err
		}
		account, ok := list.byHash[hashKey(token)]
		if !ok {
			return model.Identity{}, fmt.Errorf("%w: no such key", auth.ErrBadToken)
		}
		s.note(account.ID)
		return model.Identity{UserID: account.ID, Role: account.Role, Key: true}, nil
	}
	who, err := s.Tokens.Verify(token)
	if err != nil || who.Role == model.RoleBuyer || !isStaffID(who.UserID) {
		return who, err
	}
	if s.Off {
		return model.Identity{}, fmt.Errorf("%w: nobody logs in here", auth.ErrBadToken)
	}
	list, err := s.list()
	if err != nil {
		return model.Identity{}, err
	}
	account, ok := list.byID[who.UserID]
	if !ok || !hmac.Equal([]byte(who.Stamp), []byte(s.Tokens.Stamp(account))) {
		return model.Identity{}, fmt.Errorf("%w: %s was removed, or has another password", auth.ErrBadToken, who.UserID)
	}
	return model.Identity{UserID: account.ID, Role: account.Role}, nil
}

// isStaffID reports whether an id is that of a built-in account of the staff, or of a key, which gets no tokens.
func isStaffID(id string) bool {
	return id == OperatorName || strings.HasPrefix(id, model.OperatorPrefix) || strings.HasPrefix(id, model.KeyPrefix)
}

// list returns the list of the staff. It reads the list again when rosterAge is over; while one request reads, the others use the
// old list. After forget, all requests wait for the reading. If the list can't be read, the old one is used. The error wraps
// model.ErrUnavailable if there is no old one.
func (s *Staff) list() (*roster, error) {
	list := s.roster.Load()
	switch {
	case list == nil || list.readAt.IsZero(): // there is no list, or this instance has changed the staff since it was read
		s.reading.Lock()
	case s.Now().Sub(list.readAt) < rosterAge || !s.reading.TryLock():
		return list, nil
	}
	defer s.reading.Unlock()
	if now := s.roster.Load(); now != nil && s.Now().Sub(now.readAt) < rosterAge {
		return now, nil // another request has just read the list
	}
	ctx, cancel := context.WithTimeout(context.Background(), rosterTimeout)
	defer cancel()
	fresh := &roster{readAt: s.Now()}
	accounts, err := s.Store.Staff(ctx)
	switch {
	case err == nil:
		fresh.byID, fresh.byHash = map[string]model.Account{}, map[string]model.Account{}
		for _, a := range accounts {
			if fresh.byID[a.ID] = a; a.IsKey() {
				fresh.byHash[a.PasswordHash] = a
			}
		}
	case list == nil:
		return nil, fmt.Errorf("%w: read the staff: %w", model.ErrUnavailable, err)
	default:
		fresh.byID, fresh.byHash = list.byID, list.byHash
	}
	s.roster.Store(fresh)
	return fresh, nil
}

// forget makes the next request read the list again. It waits for a reading that may have begun before the change. If the next
// reading fails, the old list is used again.
func (s *Staff) forget() {
	s.reading.Lock()
	defer s.reading.Unlock()
	if list := s.roster.Load(); list != nil {
		s.roster.Store(&roster{byID: list.byID, byHash: list.byHash}) // without a time, so that it is read again
	}
}

// note records the use of a key, unless that was done less than usePeriod ago.
func (s *Staff) note(id string) {
	now := s.Now()
	if last, ok := s.used.Load(id); ok && now.Sub(last.(time.Time)) < usePeriod { //nolint:forcetypeassert // only times are stored
		return
	}
	s.used.Store(id, now)
	ctx, cancel := context.WithTimeout(context.Background(), rosterTimeout)
	defer cancel()
	_ = s.Store.Used(ctx, id) // only for display; a later use records it again
}
