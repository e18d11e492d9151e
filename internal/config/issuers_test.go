package config

import (
	"strings"
	"testing"

	"flashsale/model"
	"flashsale/test/kit/check"
)

func TestIssuers(t *testing.T) {
	const id = "https://id.shop.example"
	list, err := settingsOf(t, "--audience=shop", "--issuer="+id+"/realms/a,b="+id+"/realms/b?x=y", "--jwks=http://127.0.0.1:1/keys", "--issuer-name=old=shop").Outside()
	check.NoError(t, err)
	check.Same(t, "issuers", list, []model.Issuer{
		{Name: id + "/realms/a", Prefix: "id.shop.example"}, {Name: id + "/realms/b?x=y", Prefix: "b"}, {Name: "shop", Prefix: "old", KeysURL: "http://127.0.0.1:1/keys"},
	})
	list, err = settingsOf(t).Outside()
	if err != nil || list != nil {
		t.Error(list, err)
	}
	for want, args := range map[string][]string{
		"--audience":                  {"--issuer=" + id},
		"--issuer: want https":        {"--audience=a", "--issuer=http://id.shop.example"},
		"--issuer: want http":         {"--audience=a", "--issuer=shop"},
		"--issuer: want":              {"--audience=a", "--issuer=http://id.shop.example/?socket=/x"},
		"--issuer: the issuer or":     {"--audience=a", "--issuer=" + id + "/a," + id + "/b"},
		"--issuer: the issuer or its": {"--audience=a", "--issuer=key=" + id},
		"--issuer: the prefix":        {"--audience=a", "--issuer=a_b=" + id},
		"--jwks: is":                  {"--audience=a", "--jwks=" + id},
		"--jwks: is for":              {"--audience=a", "--issuer-name=shop"},
		"--jwks: the prefix":          {"--audience=a", "--jwks=" + id, "--issuer-name=a:b"},
		"--operator-claim":            {"--audience=a", "--issuer=" + id, "--operator-claim=admin"},
		"--viewer-claim":              {"--viewer-claim=a=b"},
	} {
		if _, err := settingsOf(t, args...).Outside(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
