package roundtrippers_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/ownership/ownershiptest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// A key moves to another node and the client's map is outdated: the node that is
// asked in vain says who has it. The cluster is a simulated one; with a real one
// Source is an ownership.HTTPSource and Base is left out.
func ExampleOwnershipBuilder() {
	cluster, err := ownershiptest.New(ownershiptest.Config{Nodes: 2, Hints: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	registry, err := ownership.New(ownership.Config{Source: cluster.Source()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer registry.Close()
	rt, err := roundtrippers.OwnershipBuilder{
		Dialect: &ownership.Dialect{Key: ownership.PathKey("/kv/")},
		Owners:  registry,
		Base:    cluster.Transport(),
	}.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: rt}

	put := func(value string) {
		req, err := http.NewRequest(http.MethodPut, "http://kv.internal/kv/42", strings.NewReader(value)) // any host: the map says where
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		report := middleware.FromResponse(resp).Report()
		fmt.Println(resp.StatusCode, "after", report.Sends, "sends:")
		for _, a := range report.Attempts {
			fmt.Println("-", a.Number, a.Cause, a.Status)
		}
	}
	put("one")
	for _, node := range cluster.Nodes() {
		if node != cluster.Owner("42") {
			cluster.Move("42", node)
			break
		}
	}
	put("two")
	// Output:
	// 201 after 1 sends:
	// - 1 success 201
	// 200 after 2 sends:
	// - 1 gone 421
	// - 2 success 200
}
