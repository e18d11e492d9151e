package handler

import (
	"context"
	"encoding/xml"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"net/http"
	"strings"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"flashsale/service"
	"flashsale/test/kit/check"
)

// svg has the parts of our drawings.
type svg struct {
	XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
	ViewBox string   `xml:"viewBox,attr"`
	Edges   string   `xml:"shape-rendering,attr"`
	Title   string   `xml:"title"`
	Rect    struct {
		Width  int    `xml:"width,attr"`
		Height int    `xml:"height,attr"`
		Fill   string `xml:"fill,attr"`
	} `xml:"rect"`
	Path []struct {
		D string `xml:"d,attr"`
	} `xml:"path"`
}

func readSVG(t *testing.T, text string) svg {
	t.Helper()
	var s svg
	check.NoError(t, xml.Unmarshal([]byte(text), &s))
	return s
}

// raster draws as a browser does, with some dots for each module.
func (s svg) raster(t *testing.T, dots int) image.Image {
	t.Helper()
	var x, y, side int
	if n, err := fmt.Sscanf(s.ViewBox, "%d %d %d %d", &x, &y, &side, &side); n != 4 || err != nil || x != 0 || y != 0 {
		t.Fatalf("viewBox %q", s.ViewBox)
	}
	if s.Rect.Width != side || s.Rect.Height != side || s.Rect.Fill != "#fff" || len(s.Path) != 1 {
		t.Fatalf("%+v", s)
	}
	picture := image.NewGray(image.Rect(0, 0, side*dots, side*dots))
	draw.Draw(picture, picture.Bounds(), image.White, image.Point{}, draw.Src)
	for run := range strings.SplitAfterSeq(s.Path[0].D, "z") {
		if run == "" {
			continue
		}
		var x, y, width, back int
		if n, err := fmt.Sscanf(run, "M%d %dh%dv1h-%dz", &x, &y, &width, &back); n != 4 || err != nil || width < 1 || back != width {
			t.Fatalf("%q: %v", run, err)
		}
		if x < quietZone || y < quietZone || x+width > side-quietZone || y+1 > side-quietZone {
			t.Errorf("%q is in the quiet zone of %d", run, side)
		}
		draw.Draw(picture, image.Rect(x*dots, y*dots, (x+width)*dots, (y+1)*dots), image.Black, image.Point{}, draw.Src)
	}
	return picture
}

// Another library reads our codes, also partly covered.
func TestQRCodesAreRead(t *testing.T) {
	check.Each(t, map[string]string{
		"short":          "http://127.0.0.1:8080/s/ABCDEFGH",
		"usual":          "https://shop.example/s/Q5WEKBVD",
		"with a port":    "https://sale.shop.example.com:8443/s/22222222",
		"only capitals":  "HTTP://SHOP.EXAMPLE/S/ABCDEFGH",
		"escaped in XML": "https://shop.example/a?b=<c>&d='e'/s/ABCDEFGH",
		"beyond ASCII":   "https://抢购.example/s/ABCDEFGH",
		"very long":      "https://" + strings.Repeat("a-long-name.", 20) + "example/s/ABCDEFGH",
	}, func(t *testing.T, link string) {
		drawing := readSVG(t, check.Must(drawQR(link)))
		check.Same(t, "title and edges", []string{drawing.Title, drawing.Edges}, []string{link, "crispEdges"})
		picture := drawing.raster(t, 4)
		for _, covered := range []bool{false, true} {
			if covered {
				middle := picture.Bounds().Dx() / 2
				spot := image.Rect(middle, middle, middle+8, middle+8) // two by two modules, apart from the marks
				draw.Draw(picture.(*image.Gray), spot, image.NewUniform(color.Black), image.Point{}, draw.Src)
			}
			read := check.Must(qrcode.NewQRCodeReader().Decode(check.Must(gozxing.NewBinaryBitmapFromImage(picture)), nil))
			check.Same(t, "text", read.GetText(), link)
			check.Same(t, "level", read.GetResultMetadata()[gozxing.ResultMetadataType_ERROR_CORRECTION_LEVEL], any("M"))
		}
	})
	if text, err := drawQR(strings.Repeat("x", 5000)); err == nil {
		t.Errorf("a link that is too long for any code: %d bytes", len(text))
	}
}

// codes has one short code.
type codes struct {
	service.SaleStore
	asked int
}

func (s *codes) SaleByCode(_ context.Context, code string) (string, error) {
	s.asked++
	if code == "abc" {
		return benchSale, nil
	}
	return "", nil
}

// A short link's code is drawn once, and caches may keep it for a day.
func TestQRCodeOfASale(t *testing.T) {
	s, store := newShop(t), &codes{}
	s.api.Links.Service = &service.Sales{Store: store, Catalog: s.offers.Catalog}
	w := s.get("/s/abc/qr.svg")
	check.Same(t, "status", w.Code, http.StatusOK)
	sameHeader(t, "code", w.Header(), map[string]string{"Content-Type": "image/svg+xml", "Cache-Control": "public, max-age=86400"})
	check.Same(t, "link", readSVG(t, w.Body.String()).Title, "http://localhost/s/abc")
	known := s.get("/s/abc/qr.svg", "If-None-Match", w.Header().Get("ETag"))
	check.Same(t, "status when known", known.Code, http.StatusNotModified)
	check.Same(t, "body when known", known.Body.Len(), 0)
	check.Same(t, "look-ups", store.asked, 1)
	for _, code := range []string{"abd", "ABC", benchSale, strings.Repeat("a", 4000), "%2e%2e", "abc%00"} {
		w := s.get("/s/" + code + "/qr.svg")
		check.Same(t, code, w.Code, http.StatusNotFound)
		check.Same(t, code, readProblem(t, w)["code"], any("not_found"))
	}
}
