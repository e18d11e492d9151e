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

	"flashsale/internal/prepared"
	"flashsale/model"
)

//go:embed assets
var assetFiles embed.FS

const (
	// assetsPath is the path below which assets are served, under names that contain a hash of their contents.
	assetsPath = "/assets/"
	// hashBytes is how many bytes of the SHA-256 a name contains: enough to tell two versions of a file apart.
	hashBytes = 6
	// forever is the Cache-Control of an asset. The contents behind a name with a hash do not change.
	forever = "public, max-age=31536000, immutable"
	// assetPolicy is for an asset that a browser shows on its own, such as a picture.
	assetPolicy = "default-src 'none'"
	anyOrigin   = "Access-Control-Allow-Origin" // with "*", pages of shops may load scripts
)

// contentTypes are the content types of the assets. The system's own table differs from machine to machine.
var contentTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
	".txt": "text/plain; charset=utf-8",
}

// reference matches the name of one asset inside another: "./NAME".
var reference = regexp.MustCompile(`"\./([a-z0-9-]+\.[a-z]+)"`)

// Assets are the style, scripts and pictures of the pages, prepared to be served.
type Assets struct {
	served map[string]*prepared.Answer // by names with a hash
	bodies map[string][]byte           // as they are served, by plain names
	names  map[string]string           // names with a hash, by plain names
	needs  map[string][]string         // the files that a file refers to, directly or not, by plain names
}

// NewAssets prepares the embedded files and the wordModules. The engines of a process share the result.
var NewAssets = sync.OnceValues(func() (*Assets, error) {
	sources := map[string][]byte{}
	for module := range wordModules {
		words, err := wordsModule(module)
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
})

// makeAssets replaces the names inside the files by names with a hash. It prepares a file after all files that the file refers
// to, so it returns an error if files refer to each other in a circle.
func makeAssets(sources map[string][]byte) (*Assets, error) {
	a := &Assets{served: map[string]*prepared.Answer{}, bodies: map[string][]byte{}, names: map[string]string{}, needs: map[string][]string{}}
	for name := range sources {
		if err := a.add(sources, name, nil); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// add prepares a file, after the files that it refers to, unless that is done. "within" has the files that led to this one.
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
	if contentTypes[path.Ext(name)] == "" {
		return fmt.Errorf("asset %s: no content type is known", name)
	}
	served, answer := hashed(name, body)
	a.bodies[name], a.names[name], a.served[served] = body, served, answer.Compressed()
	return nil
}

// hashed returns the name with a hash under which an asset is served, and the answer.
func hashed(name string, body []byte) (served string, answer *prepared.Answer) {
	extension, hash := path.Ext(name), sha256.Sum256(body)
	return strings.TrimSuffix(name, extension) + "." + hex.EncodeToString(hash[:hashBytes]) + extension, prepared.Plain(http.StatusOK, http.Header{
		"Content-Type": {contentTypes[extension]}, "Cache-Control": {forever}, "Content-Security-Policy": {assetPolicy}, anyOrigin: {"*"},
	}, body)
}

// shopStyle returns the style sheet for a shop's colour, as hashed does. It is made of the colour alone, so an instance serves it
// also for pages of other instances.
func shopStyle(color string) (served string, answer *prepared.Answer) {
	rule := func(s model.Scheme) string {
		return fmt.Sprintf(":root { --accent: %s; --on-accent: %s; --accent-press: %s; --accent-soft: %s; }\n", s.Accent, s.OnAccent, s.Press, s.Soft)
	}
	light, dark, _ := model.Schemes(color)
	return hashed("shop-"+strings.TrimPrefix(color, "#")+".css", []byte(rule(light)+"@media (prefers-color-scheme: dark) {\n"+rule(dark)+"}\n"))
}

// ofShop matches the names of shopStyle.
var ofShop = regexp.MustCompile(`^shop-([0-9a-f]{6})\.`)

// URL returns the path of an asset. It returns an error if there is no asset of that name.
func (a *Assets) URL(name string) (string, error) {
	served, ok := a.names[name]
	if !ok {
		return "", fmt.Errorf("there is no asset %s", name)
	}
	return assetsPath + served, nil
}

// loader returns a module that loads another module and the files that this needs. The loader can have an address without a hash.
func (a *Assets) loader(name string) (module []byte) {
	for _, needed := range append(slices.Clone(a.needs[name]), name) {
		module = fmt.Appendf(module, "import \".%s%s\";\n", assetsPath, a.names[needed])
	}
	return module
}

// ServeHTTP answers with an asset, with 304 if the client has the asset, or with 404 if there is none of that name.
func (a *Assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, assetsPath)
	found, ok := a.served[name]
	if color := ofShop.FindStringSubmatch(name); color != nil {
		served, style := shopStyle("#" + color[1])
		found, ok = style, served == name
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	found.Send(w, r)
}
