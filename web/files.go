package web

import (
	_ "embed"
	"net/http"
)

// robots asks crawlers to leave out all but the pages of sales.
//
//go:embed robots.txt
var robots []byte

const (
	// fileMaxAge is the Cache-Control of files that seldom change.
	fileMaxAge = "public, max-age=86400"
	// filePolicy is for a file that a browser shows on its own: the file loads nothing and stands in no frame.
	filePolicy = "default-src 'none'; frame-ancestors 'none'"
)

// file is a file that is served under a fixed name.
type file struct {
	contentType, policy, maxAge string
	body                        []byte
}

// filesOf returns the files that browsers and crawlers request by themselves. /favicon.ico is the default name of the
// icon; the pages refer to the icon by its name with a hash.
func filesOf(assets *Assets) map[string]file {
	return map[string]file{
		"/robots.txt":  {contentTypes[".txt"], filePolicy, fileMaxAge, robots},
		"/favicon.ico": {contentTypes[".svg"], filePolicy, fileMaxAge, assets.bodies["mark.svg"]},
	}
}

func (f file) send(w http.ResponseWriter) {
	w.Header().Set("Content-Type", f.contentType)
	w.Header().Set("Content-Security-Policy", f.policy)
	w.Header().Set("Cache-Control", f.maxAge)
	_, _ = w.Write(f.body) // the visitor may have left
}
