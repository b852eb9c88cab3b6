package ownership_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/roundtrippers"
)

// Two nodes of a sharded service and the client that finds the right one. The
// client's map is outdated: it still names the first.
func Example() {
	// The server's side: a node that is not the owner says so, and who is.
	var owner string
	node := func(self *string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if owner != *self {
				ownership.Reject(w, ownership.Moved, ownership.Hint{Owner: owner, Epoch: 8})
				return
			}
			fmt.Fprint(w, "the value of "+r.PathValue("key"))
		})
	}
	var first, second string
	serve := func(self *string) *httptest.Server {
		mux := http.NewServeMux()
		mux.Handle("/kv/{key}", node(self))
		server := httptest.NewServer(mux)
		*self = strings.TrimPrefix(server.URL, "http://")
		return server
	}
	defer serve(&first).Close()
	defer serve(&second).Close()
	owner = second
	outdated := &ownership.Map{Epoch: 7, Segments: []ownership.Segment{{Owner: first, Replica: second}}}
	maps := httptest.NewServer(ownership.MapHandler(func() *ownership.Map { return outdated }))
	defer maps.Close()

	// The client's side.
	registry, err := ownership.New(ownership.Config{Source: &ownership.HTTPSource{URL: maps.URL}})
	if err != nil {
		panic(err)
	}
	defer registry.Close()
	rt, err := roundtrippers.OwnershipBuilder{
		Dialect: &ownership.Dialect{Key: ownership.PathKey("/kv/")},
		Owners:  registry,
	}.Build()
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: rt}
	defer client.CloseIdleConnections()

	resp, err := client.Get("http://kv.internal/kv/42") // any name: the map says where
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s: %s\n", resp.Status, body)
	for _, a := range middleware.FromResponse(resp).Report().Attempts {
		fmt.Println(a.Number, a.Cause, a.Code)
	}
	// Output:
	// 200 OK: the value of 42
	// 1 gone 421/moved
	// 2 success
}
