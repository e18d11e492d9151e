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

	"flashsale/model"
	"flashsale/service"
)

// svg is what a drawing of ours may hold.
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
	if err := xml.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return s
}

// raster draws what a browser would, with so many dots a module.
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

// A reader that we have not written reads our drawing, also in part.
func TestQRCodesAreRead(t *testing.T) {
	for name, link := range map[string]string{
		"short":             "http://127.0.0.1:8080/s/ABCDEFGH",
		"usual":             "https://shop.example/s/Q5WEKBVD",
		"with a port":       "https://sale.shop.example.com:8443/s/22222222",
		"capitals alone":    "HTTP://SHOP.EXAMPLE/S/ABCDEFGH",
		"what XML escapes":  "https://shop.example/a?b=<c>&d='e'/s/ABCDEFGH",
		"beyond ASCII":      "https://抢购.example/s/ABCDEFGH",
		"as long as it can": "https://" + strings.Repeat("a-long-name.", 20) + "example/s/ABCDEFGH",
	} {
		t.Run(name, func(t *testing.T) {
			text, err := drawQR(link)
			if err != nil {
				t.Fatal(err)
			}
			drawing := readSVG(t, text)
			if drawing.Title != link || drawing.Edges != "crispEdges" {
				t.Errorf("%+v", drawing)
			}
			picture := drawing.raster(t, 4)
			for _, covered := range []bool{false, true} {
				if covered {
					middle := picture.Bounds().Dx() / 2
					spot := image.Rect(middle, middle, middle+8, middle+8) // two by two modules, where no mark is
					draw.Draw(picture.(*image.Gray), spot, image.NewUniform(color.Black), image.Point{}, draw.Src)
				}
				bits, err := gozxing.NewBinaryBitmapFromImage(picture)
				if err != nil {
					t.Fatal(err)
				}
				read, err := qrcode.NewQRCodeReader().Decode(bits, nil)
				if err != nil {
					t.Fatalf("covered %t: %v", covered, err)
				}
				if read.GetText() != link {
					t.Errorf("read %q, want %q", read.GetText(), link)
				}
				if level := read.GetResultMetadata()[gozxing.ResultMetadataType_ERROR_CORRECTION_LEVEL]; level != "M" {
					t.Errorf("level %v", level)
				}
			}
		})
	}
	if text, err := drawQR(strings.Repeat("x", 5000)); err == nil {
		t.Errorf("a link that no code holds: %d bytes", len(text))
	}
}

// codes knows one short code.
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

// The code of a short link is drawn once, and caches may keep it for a day.
func TestQRCodeOfASale(t *testing.T) {
	s, store := newShop(t), &codes{}
	s.api.Sales = &service.Sales{Store: store, Catalog: s.api.Catalog}
	tag := ""
	for range 2 {
		w := s.get("/s/abc/qr.svg", tag)
		if tag != "" {
			if w.Code != http.StatusNotModified || w.Body.Len() > 0 {
				t.Errorf("known already: %d %s", w.Code, w.Body)
			}
			break
		}
		tag = w.Header().Get("ETag")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "image/svg+xml" || w.Header().Get("Cache-Control") != "public, max-age=86400" || tag == "" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		if title := readSVG(t, w.Body.String()).Title; title != "http://localhost/s/abc" {
			t.Errorf("a code of %s", title)
		}
	}
	if store.asked != 1 {
		t.Errorf("the database was asked %d times", store.asked)
	}
	for _, code := range []string{"abd", "ABC", benchSale, strings.Repeat("a", 4000), "%2e%2e", "abc%00"} {
		w := s.get("/s/"+code+"/qr.svg", "")
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), string(model.NotFound)) {
			t.Errorf("%s: %d %s", code, w.Code, w.Body)
		}
	}
}

func BenchmarkQRCode(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := drawQR("https://shop.example/s/Q5WEKBVD"); err != nil {
			b.Fatal(err)
		}
	}
}
