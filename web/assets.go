package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"flashsale/prepared"
)

//go:embed assets
var assetFiles embed.FS

const (
	// assetsPath is where assets are served, under names that hold a hash of what is in them.
	assetsPath = "/assets/"
	// hashBytes of SHA-256 in a name: two versions of one file won't share one.
	hashBytes = 6
	// forever is what a name with a hash allows: what it names never changes.
	forever = "public, max-age=31536000, immutable"
	// assetPolicy is for an asset that is opened by itself, as a picture may be.
	assetPolicy = "default-src 'none'"
)

// contentTypes are those of the assets; the system's own table differs from machine to machine.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
	".txt": "text/plain; charset=utf-8",
}

// reference is how an asset names another: "./NAME".
var reference = regexp.MustCompile(`"\./([a-z0-9-]+\.[a-z]+)"`)

// Assets are the style, scripts and pictures of the pages, made ready once at the start.
type Assets struct {
	served map[string]*prepared.Answer // by the name with a hash
	bodies map[string][]byte           // as they are served, by plain names
	names  map[string]string           // the name with a hash, by the plain one
	needs  map[string][]string         // what a file refers to, directly or not, by plain names
}

// NewAssets makes the embedded files ready, once for all engines of this process: the lab has several.
var NewAssets = sync.OnceValues(embeddedAssets)

// embeddedAssets makes the embedded files ready, and modules with the words of all languages.
func embeddedAssets() (*Assets, error) {
	sources := map[string][]byte{}
	for folder, module := range map[string]string{shopWords: "words.js", consoleWords: "console-words.js"} {
		words, err := wordsModule(folder)
		if err != nil {
			return nil, err
		}
		sources[module] = words
	}
	files, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if sources[file.Name()], err = assetFiles.ReadFile("assets/" + file.Name()); err != nil {
			return nil, err
		}
	}
	return makeAssets(sources)
}

// makeAssets replaces names inside the files by names with a hash, so those that are referred to come first; a circle is
// an error.
func makeAssets(sources map[string][]byte) (*Assets, error) {
	a := &Assets{served: map[string]*prepared.Answer{}, bodies: map[string][]byte{}, names: map[string]string{}, needs: map[string][]string{}}
	for name := range sources {
		if err := a.add(sources, name, nil); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// add makes a file ready after those that it refers to. within are the files that wait for this one.
func (a *Assets) add(sources map[string][]byte, name string, within []string) error {
	source, ok := sources[name]
	switch {
	case a.names[name] != "":
		return nil
	case !ok:
		return fmt.Errorf("%s refers to %s, which is not there", strings.Join(within, " in "), name)
	case slices.Contains(within, name):
		return fmt.Errorf("assets refer to each other in a circle: %s, %s", strings.Join(within, ", "), name)
	}
	within = append(slices.Clone(within), name)
	for _, match := range reference.FindAllSubmatch(source, -1) {
		other := string(match[1])
		if err := a.add(sources, other, within); err != nil {
			return err
		}
		for _, needed := range append(slices.Clone(a.needs[other]), other) {
			if !slices.Contains(a.needs[name], needed) {
				a.needs[name] = append(a.needs[name], needed)
			}
		}
	}
	body := reference.ReplaceAllFunc(source, func(quoted []byte) []byte {
		return []byte(strconv.Quote("./" + a.names[string(quoted[3:len(quoted)-1])]))
	})
	extension := path.Ext(name)
	contentType, ok := contentTypes[extension]
	if !ok {
		return fmt.Errorf("asset %s: no content type is known", name)
	}
	hash := sha256.Sum256(body)
	a.bodies[name] = body
	a.names[name] = strings.TrimSuffix(name, extension) + "." + hex.EncodeToString(hash[:hashBytes]) + extension
	a.served[a.names[name]] = prepared.New(http.StatusOK, http.Header{
		"Content-Type": {contentType}, "Cache-Control": {forever}, "Content-Security-Policy": {assetPolicy},
	}, body)
	return nil
}

// URL is where an asset is served. It fails for a name that no asset has.
func (a *Assets) URL(name string) (string, error) {
	served, ok := a.names[name]
	if !ok {
		return "", fmt.Errorf("there is no asset %s", name)
	}
	return assetsPath + served, nil
}

// ServeHTTP answers with an asset, or 304 if the client has it.
func (a *Assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found, ok := a.served[strings.TrimPrefix(r.URL.Path, assetsPath)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	found.Send(w, r)
}
