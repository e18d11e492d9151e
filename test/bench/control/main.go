// Command control is the bare Gin server with which the engine is compared. It has one route, METHOD and ROUTE, which
// reads the same body and headers as the engine's route. It forwards its first request to ENGINE until the answer has
// the status STATUS. Then it gives every request this answer. WAITS, durations with spaces between them, are calls that do
// nothing but take this time. A request waits for each of them, together with all requests that gather meanwhile, as a
// purchase waits for the gate and for its commit.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"flashsale/internal/batch"
)

func main() {
	var learn sync.Once
	var status int
	var headers http.Header
	var text []byte
	var waits []*batch.Batcher[struct{}, struct{}]
	for _, text := range strings.Fields(os.Getenv("WAITS")) {
		took, err := time.ParseDuration(text)
		if err != nil {
			log.Fatal(err)
		}
		limits := batch.Limits{Batch: 512, Queue: 8192, Calls: 1, Time: time.Second}
		waits = append(waits, batch.New(limits, func(_ context.Context, _ string, items []struct{}) ([]struct{}, error) {
			<-time.After(took)
			return items, nil
		}))
	}
	gin.SetMode(gin.ReleaseMode)
	control := gin.New()
	control.Handle(os.Getenv("METHOD"), os.Getenv("ROUTE"), func(c *gin.Context) {
		body, err := c.GetRawData()
		if err != nil || c.Request.Method == http.MethodPost && c.GetHeader("Authorization") == "" {
			c.AbortWithStatus(http.StatusBadRequest)
			return
		}
		learn.Do(func() { status, headers, text = ask(c.Request, body) })
		for _, wait := range waits {
			if _, err := wait.Do(c.Request.Context(), "", struct{}{}); err != nil {
				c.AbortWithStatus(http.StatusServiceUnavailable)
				return
			}
		}
		header := c.Writer.Header()
		for name, values := range headers {
			header[name] = values
		}
		c.Data(status, headers.Get("Content-Type"), text)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // the listener lives as long as the process
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(os.Stdout, "control is at http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, control)) //nolint:gosec // without time-outs on purpose: they cost time
}

// ask repeats a request, because the engine needs some time to notice that a store was killed.
func ask(request *http.Request, body []byte) (status int, headers http.Header, text []byte) {
	transport := &http.Transport{DisableCompression: true} // as wrk asks
	for ; ; <-time.After(10 * time.Millisecond) {
		again := request.Clone(context.Background())
		again.RequestURI, again.Body = "", io.NopCloser(bytes.NewReader(body))
		again.URL.Scheme, again.URL.Host = "http", strings.TrimPrefix(os.Getenv("ENGINE"), "http://")
		answer, err := transport.RoundTrip(again)
		if err != nil {
			log.Fatal(err)
		}
		text, err = io.ReadAll(answer.Body)
		if err = errors.Join(err, answer.Body.Close()); err == nil && fmt.Sprint(answer.StatusCode) == os.Getenv("STATUS") {
			for _, name := range []string{"Date", "Content-Length", "Connection"} { // each server writes its own
				answer.Header.Del(name)
			}
			return answer.StatusCode, answer.Header, text
		}
	}
}
