package repository

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flashsale/test/kit"
	"flashsale/test/kit/check"
)

// TestEncryptedMySQL: the server refuses connections over TCP that are not encrypted, and one user needs a certificate.
func TestEncryptedMySQL(t *testing.T) {
	t.Parallel()
	folder, other := t.TempDir(), t.TempDir()
	kit.Certificate(t, folder)
	kit.Certificate(t, other)
	cert, key := filepath.Join(folder, "certificate.pem"), filepath.Join(folder, "key.pem")
	server := kit.MariaDB(t, "--require-secure-transport=ON", "--ssl-ca="+cert, "--ssl-cert="+cert, "--ssl-key="+key)
	plain, certified := server.NewDatabase(t), server.NewDatabase(t)
	parsed, err := url.Parse(certified)
	check.NoError(t, err)
	account := parsed.User.Username()
	password, _ := parsed.User.Password()
	_, err = server.Root(t).ExecContext(t.Context(), "ALTER USER "+account+"@'127.0.0.1' REQUIRE X509; "+
		"CREATE USER "+account+"@localhost IDENTIFIED BY '"+password+"'; GRANT ALL ON "+account+".* TO "+account+"@localhost")
	check.NoError(t, err)

	client := "&tls-cert=" + cert + "&tls-key=" + key
	socket := "mysql://" + parsed.User.String() + "@" + parsed.Path + "?socket=" + server.Socket()
	for name, address := range map[string]string{
		"the certificate is checked":                   plain + "?tls-ca=" + cert,
		"the certificate is checked, in other words":   plain + "?tls=true&tls-ca=" + cert,
		"the certificate is not checked":               plain + "?tls=skip-verify",
		"encrypted if the server can":                  plain + "?tls=preferred",
		"with a certificate of the client":             certified + "?tls-ca=" + cert + client,
		"with one, and the server's is not checked":    certified + "?tls=skip-verify" + client,
		"the socket, which is not a connection of TCP": socket,
	} {
		db := openDB(t, address) // brings the schema up to date as well
		facts, err := db.Server(t.Context(), time.Now)
		check.NoError(t, err)
		check.Same(t, name+": encrypted", facts.Encrypted, address != socket)
	}
	for name, address := range map[string]string{
		"not encrypted":                            plain,
		"the certificate of nobody known":          plain + "?tls=true",
		"another certificate":                      plain + "?tls-ca=" + filepath.Join(other, "certificate.pem"),
		"another name":                             strings.Replace(plain, "127.0.0.1", "localhost", 1) + "?tls-ca=" + cert,
		"without the client's certificate":         certified + "?tls-ca=" + cert,
		"with another client's certificate":        certified + "?tls-ca=" + cert + strings.ReplaceAll(client, folder, other),
		"a certificate without its key":            certified + "?tls-ca=" + cert + "&tls-cert=" + cert,
		"a key of another certificate":             certified + "?tls-ca=" + cert + "&tls-cert=" + cert + "&tls-key=" + filepath.Join(other, "key.pem"),
		"authorities that are not used":            plain + "?tls=skip-verify&tls-ca=" + cert,
		"authorities that are not in the file":     plain + "?tls-ca=" + key,
		"a file that does not exist":               plain + "?tls-ca=" + cert + ".old",
		"a mode that does not exist":               plain + "?tls=perhaps",
		"an unknown parameter":                     plain + "?tls=true&charset=latin1",
		"a parameter twice":                        plain + "?tls=true&tls=skip-verify",
		"a host beside a socket":                   plain + "?socket=" + server.Socket(),
		"encryption of a socket":                   socket + "&tls=true",
		"neither a host nor a socket":              "mysql://u:p@/shop",
		"the socket of no server":                  socket + ".old",
		"parameters with a sign that can't be one": plain + "?tls=%zz",
	} {
		refusesToOpen(t, name, address)
	}
}
