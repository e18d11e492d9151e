package config

import (
	"cmp"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"flashsale/model"
)

// prefixForm is the form of a prefix of user ids.
var prefixForm = regexp.MustCompile(`^[A-Za-z0-9.-]{1,32}$`)

// Outside returns the issuers that the settings name. An error is one line that names a wrong setting.
func (s *Settings) Outside() (list []model.Issuer, err error) {
	for _, setting := range s.Issuers {
		list = append(list, issuerOf(setting, ""))
	}
	if s.JWKS != "" {
		list = append(list, issuerOf(s.IssuerName, s.JWKS))
	}
	checks := []error{
		Refuse((s.JWKS == "") != (s.IssuerName == ""), "--jwks: is for --issuer-name; want both or none"),
		Refuse(s.ClientID != "" && len(s.Issuers) == 0 || s.ClientSecret != "" && s.ClientID == "", "--client-id: needs an --issuer, and --client-secret a --client-id"),
		Refuse(s.Scopes != "" && (s.ClientID == "" || !slices.Contains(strings.Fields(s.Scopes), "openid")),
			"--scopes: is for --client-id, and must have openid among the scopes, with spaces between them"),
		Refuse(len(list) > 0 && s.Audience == "", "--audience: required with --issuer or --jwks, or tokens for other services would be accepted"),
	}
	names, prefixes := map[string]bool{}, map[string]bool{"operator": true, "key": true} // taken by staff and keys
	for _, i := range list {
		flag, address := "--issuer", i.Name
		if i.KeysURL != "" {
			flag, address = "--jwks", i.KeysURL
		}
		u, err := url.Parse(address)
		checks = append(checks,
			Refuse(err != nil || !httpURL(address) || u.Scheme != "https" && !isNear(spelled(net.JoinHostPort(u.Hostname(), ""))[0]), "%s: want https://host/..., or http:// on this machine", flag),
			Refuse(!prefixForm.MatchString(i.Prefix), "%s: the prefix %q must be 1 to 32 of A-Z a-z 0-9 . -", flag, i.Prefix),
			Refuse(names[i.Name] || prefixes[i.Prefix], "%s: the issuer or its prefix %q is taken; want PREFIX=URL with another prefix", flag, i.Prefix))
		names[i.Name], prefixes[i.Prefix] = true, true
	}
	for flag, claim := range map[string]string{"--viewer-claim": s.ViewerClaim, "--support-claim": s.SupportClaim, "--operator-claim": s.OperatorClaim} {
		name, value, _ := strings.Cut(claim, "=")
		checks = append(checks, Refuse(claim != "" && (name == "" || value == "" || len(list) == 0), "%s: want CLAIM=VALUE, beside an issuer", flag))
	}
	if err := cmp.Or(checks...); err != nil {
		return nil, err
	}
	return list, nil
}

// issuerOf reads [PREFIX=]NAME. A URL may contain an equals sign, but not before its scheme.
func issuerOf(setting, keysURL string) model.Issuer {
	i := model.Issuer{Name: setting, KeysURL: keysURL}
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
