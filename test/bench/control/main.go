// Command control is the bare Gin server with which the engine is compared. It has one route, which reads the same body
// and headers as the engine's route and gives an answer of the engine, byte for byte.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/gin-gonic/gin"
)

// answer is the answer to every request.
type answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	method := flag.String("method", http.MethodPost, "method of the route")
	route := flag.String("route", "", "Gin pattern of the route")
	file := flag.String("answer", "", "JSON file with status, header and body of the answer")
	flag.Parse()

	raw, err := os.ReadFile(*file)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	body, contentType := []byte(a.Body), a.Header.Get("Content-Type")

	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Handle(*method, *route, func(c *gin.Context) {
		if _, err := c.GetRawData(); err != nil {
			c.AbortWithStatus(http.StatusBadRequest)
			return
		}
		if *method == http.MethodPost && c.GetHeader("Authorization") == "" {
			c.AbortWithStatus(http.StatusUnauthorized)
			return
		}
		header := c.Writer.Header()
		for name, values := range a.Header {
			header[name] = values
		}
		c.Data(a.Status, contentType, body)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // the listener lives as long as the process
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "control is at http://%s\n", listener.Addr())
	return http.Serve(listener, engine) //nolint:gosec // without time-outs on purpose: they cost time
}
