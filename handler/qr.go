package handler

import (
	"fmt"
	"html"
	"image/color"
	"net/http"
	"strings"

	"github.com/boombuler/barcode/qr"
	"github.com/gin-gonic/gin"
	"github.com/maypok86/otter/v2"

	"flashsale/internal/prepared"
	"flashsale/middleware"
	"flashsale/service"
)

const (
	// quietZone is the width of the white border that readers need to find a code, in modules (the squares of the code).
	quietZone = 4
	// maxQRCodes bounds the cache of codes. A code takes some kilobytes, and milliseconds to make.
	maxQRCodes = 1000
)

// Links are the short links of sales and campaigns, and their QR codes.
type Links struct {
	Service   *service.Sales
	PublicURL func() string
}

// qrCode answers with a short link as a QR code.
func (l *Links) qrCode() gin.HandlerFunc {
	kept := otter.Must(&otter.Options[string, *prepared.Answer]{MaximumSize: maxQRCodes})
	return func(c *gin.Context) {
		code := c.Param("code")
		made, ok := kept.GetIfPresent(code)
		if !ok {
			if _, ok := l.page(c); !ok {
				return
			}
			svg, err := drawQR(l.PublicURL() + "/s/" + code)
			if err != nil {
				middleware.Fail(c, err)
				return
			}
			header := http.Header{"Content-Type": {"image/svg+xml"}, "Cache-Control": {"public, max-age=86400"}}
			made = prepared.New(http.StatusOK, header, []byte(svg))
			kept.Set(code, made)
		}
		made.Send(c.Writer, c.Request)
	}
}

// drawQR returns a link as a QR code in SVG, with the error correction level M.
func drawQR(link string) (string, error) {
	code, err := qr.Encode(link, qr.M, qr.Auto)
	if err != nil {
		return "", fmt.Errorf("draw a QR code: %w", err)
	}
	side := code.Bounds().Dx()
	var dark strings.Builder
	for y := range side {
		for x := 0; x < side; x++ {
			run := 0
			for x+run < side && code.At(x+run, y) == color.Black {
				run++
			}
			if run > 0 {
				fmt.Fprintf(&dark, "M%d %dh%dv1h-%dz", quietZone+x, quietZone+y, run, run)
				x += run
			}
		}
	}
	whole := side + 2*quietZone
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" shape-rendering="crispEdges" role="img">`+
		`<title>%s</title><rect width="%d" height="%d" fill="#fff"/><path d="%s"/></svg>`,
		whole, whole, html.EscapeString(link), whole, whole, &dark), nil
}

func (l *Links) follow(c *gin.Context) {
	if path, ok := l.page(c); ok {
		c.Redirect(http.StatusFound, path)
	}
}

// page returns the path of the page to which the route's code leads. A code is a sale's short code or a campaign's id. If nothing
// has the code, page ends the request as found does.
func (l *Links) page(c *gin.Context) (path string, ok bool) {
	code := c.Param("code")
	id, err := l.Service.ByCode(c.Request.Context(), code)
	if id != "" || err != nil {
		return "/sales/" + id, found(c, id != "", err)
	}
	sales, err := l.Service.Catalog.Campaign(c.Request.Context(), code)
	return "/campaigns/" + code, found(c, len(sales) > 0, err)
}
