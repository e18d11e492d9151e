package web

import (
	_ "embed"
	"net/http"

	"flashsale/internal/prepared"
)

// robots asks crawlers to leave out paths that are no pages of sales.
//
//go:embed robots.txt
var robots []byte

// openAPI describes the HTTP API. WRITE_API=1 go test -run TestAPIIsMade ./web makes the page /api and openAPIJSON from it.
//
//go:embed openapi.yaml
var openAPI []byte

//go:embed openapi.json
var openAPIJSON []byte

const (
	// fileMaxAge is the Cache-Control of files that seldom change.
	fileMaxAge = "public, max-age=86400"
	// filePolicy is for a file that a browser shows on its own: the file loads nothing and stands in no frame.
	filePolicy = "default-src 'none'; frame-ancestors 'none'"
)

// filesOf returns the files at fixed paths.
func filesOf(assets *Assets) map[string]*prepared.Answer {
	file := func(contentType, maxAge string, body []byte) *prepared.Answer {
		header := http.Header{"Content-Type": {contentType}, "Content-Security-Policy": {filePolicy}, "Cache-Control": {maxAge}}
		return prepared.Plain(http.StatusOK, header, body)
	}
	embed := http.Header{"Content-Type": {contentTypes[".js"]}, "Content-Security-Policy": {filePolicy}, "Cache-Control": {pageMaxAge}, anyOrigin: {"*"}}
	return map[string]*prepared.Answer{
		"/embed.js":     prepared.Plain(http.StatusOK, embed, assets.loader("embed.js")),
		"/robots.txt":   file(contentTypes[".txt"], fileMaxAge, robots),
		"/favicon.ico":  file(contentTypes[".svg"], fileMaxAge, assets.bodies["mark.svg"]),
		"/openapi.yaml": file("application/yaml", pageMaxAge, openAPI),
		"/openapi.json": file("application/json", pageMaxAge, openAPIJSON),
	}
}
