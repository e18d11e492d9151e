package kit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate writes certificate.pem and key.pem into a folder: a new certificate for 127.0.0.1, which a server or a
// client may show. It is signed by itself, so it is also what the other side has to trust, which Certificate returns.
func Certificate(t testing.TB, folder string) (roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, "make a key", err)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "flashsale test"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, "make a certificate", err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, "write a key", err)
	for name, block := range map[string]*pem.Block{
		"certificate.pem": {Type: "CERTIFICATE", Bytes: signed},
		"key.pem":         {Type: "PRIVATE KEY", Bytes: private},
	} {
		must(t, "write "+name, os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600))
	}
	certificate, err := x509.ParseCertificate(signed)
	must(t, "read a certificate", err)
	roots = x509.NewCertPool()
	roots.AddCert(certificate)
	return roots
}
