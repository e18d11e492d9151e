package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Issuer is a server outside whose tokens are accepted.
type Issuer struct {
	Name    string // the claim iss
	Prefix  string // of its users' ids
	KeysURL string // of its JSON Web Key Set; empty: the discovery document has it
}

// prefixForm is the form of a prefix. The engine's own accounts have the prefixes operator and key.
var prefixForm = regexp.MustCompile(`^[A-Za-z0-9.-]{1,32}$`)

// Outside returns the issuers that the settings name.
func (s *Settings) Outside() (list []Issuer, err error) {
	if (s.JWKS == "") != (s.IssuerName == "") {
		return nil, errors.New("--jwks: is for --issuer-name; want both or none")
	}
	for _, setting := range s.Issuers {
		list = append(list, issuerOf(setting, ""))
	}
	if s.JWKS != "" {
		list = append(list, issuerOf(s.IssuerName, s.JWKS))
	}
	if s.ClientID != "" && len(s.Issuers) == 0 || s.ClientSecret != "" && s.ClientID == "" {
		return nil, errors.New("--client-id: needs an --issuer, and --client-secret a --client-id")
	}
	if s.Scopes != "" && (s.ClientID == "" || !slices.Contains(strings.Fields(s.Scopes), "openid")) {
		return nil, errors.New("--scopes: is for --client-id, and must have openid among the scopes, with spaces between them")
	}
	if len(list) > 0 && s.Audience == "" {
		return nil, errors.New("--audience: required with --issuer or --jwks, or tokens for other services would be accepted")
	}
	names, prefixes := map[string]bool{}, map[string]bool{"operator": true, "key": true}
	for _, i := range list {
		flag, address := "--issuer", i.Name
		if i.KeysURL != "" {
			flag, address = "--jwks", i.KeysURL
		}
		u, err := url.Parse(address)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isNear(hostName(u, "80"))):
			return nil, errors.New(flag + ": want https://host/..., or http:// on this machine")
		case !prefixForm.MatchString(i.Prefix):
			return nil, fmt.Errorf("%s: the prefix %q must be 1 to 32 of A-Z a-z 0-9 . -", flag, i.Prefix)
		case names[i.Name] || prefixes[i.Prefix]:
			return nil, fmt.Errorf("%s: the issuer or its prefix %q is taken; want PREFIX=URL with another prefix", flag, i.Prefix)
		}
		names[i.Name], prefixes[i.Prefix] = true, true
	}
	for flag, claim := range map[string]string{"--viewer-claim": s.ViewerClaim, "--support-claim": s.SupportClaim, "--operator-claim": s.OperatorClaim} {
		if name, value, _ := strings.Cut(claim, "="); claim != "" && (name == "" || value == "" || len(list) == 0) {
			return nil, errors.New(flag + ": want CLAIM=VALUE, beside an issuer")
		}
	}
	return list, nil
}

// issuerOf reads [PREFIX=]NAME. A URL may contain an equals sign, but not before its scheme.
func issuerOf(setting, keysURL string) Issuer {
	i := Issuer{Name: setting, KeysURL: keysURL}
	if prefix, name, found := strings.Cut(setting, "="); found && !strings.ContainsAny(prefix, ":/") {
		i.Prefix, i.Name = prefix, name
		return i
	}
	i.Prefix = setting
	if u, err := url.Parse(setting); err == nil && u.Host != "" {
		i.Prefix = strings.ReplaceAll(u.Host, ":", "-")
	}
	return i
}
