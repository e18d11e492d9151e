package web

import (
	_ "embed"
	"net/http"
)

// robots says to crawlers that they may read the pages of sales, and nothing else.
//
//go:embed robots.txt
var robots []byte

// fileMaxAge is how long browsers and crawlers keep what they ask for by a fixed name.
const fileMaxAge = "public, max-age=86400"

// file is served by itself under a fixed name.
type file struct {
	contentType string
	body        []byte
}

// filesOf are the files that are asked for unasked: the icon, which pages name by its hash, has this name by default.
func filesOf(assets *Assets) map[string]file {
	return map[string]file{
		"/robots.txt":  {contentTypes[".txt"], robots},
		"/favicon.ico": {contentTypes[".svg"], assets.bodies["mark.svg"]},
	}
}

func (f file) send(w http.ResponseWriter) {
	w.Header().Set("Content-Type", f.contentType)
	w.Header().Set("Content-Security-Policy", filePolicy)
	w.Header().Set("Cache-Control", fileMaxAge)
	_, _ = w.Write(f.body) // the visitor may have left
}
