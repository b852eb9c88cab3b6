package roundtrippers_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// An item is read although the nearest region is down. The account is a simulated
// one; with a real one Transport and Base are left out.
func ExampleBuilder() {
	sim, err := cosmostest.New(cosmostest.Config{Regions: []string{"West US", "East US"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sim.Close()
	sim.CreateContainer("shop", "orders", cosmostest.Container{Paths: []string{"/customer"}})

	ctx := context.Background()
	account, err := cosmos.Open(ctx, sim.Endpoint(), cosmos.SharedKey(sim.Key()), cosmos.Options{
		PreferredRegions: []regions.Name{"East US", "West US"},
		Transport:        sim.Transport(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer account.Close()
	rt, err := roundtrippers.Builder{
		Dialect:    account,
		Regions:    account.Regions,
		Partitions: account.Partitions,
		Base:       sim.Transport(),
	}.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: rt}

	send := func(method, path, body string) {
		req, err := http.NewRequestWithContext(ctx, method, sim.Endpoint()+path, strings.NewReader(body))
		if err != nil {
			fmt.Println(err)
			return
		}
		req.Header.Set("x-ms-documentdb-partitionkey", `["ann"]`)
		if err := cosmos.SharedKey(sim.Key()).Authorize(ctx, req); err != nil { // good in every region
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
		fmt.Println(report.Operation, "ends with", resp.StatusCode, "after", report.Sends, "sends:")
		for _, a := range report.Attempts {
			fmt.Println("-", a.Number, a.Region, a.Cause, a.Code)
		}
	}
	send(http.MethodPost, "/dbs/shop/colls/orders/docs", `{"id":"1","customer":"ann"}`)
	sim.SetOffline("East US", cosmostest.Refused)
	send(http.MethodGet, "/dbs/shop/colls/orders/docs/1", "")
	// Output:
	// create item ends with 201 after 1 sends:
	// - 1 West US success 201
	// read item ends with 200 after 3 sends:
	// - 1 East US unreachable unreachable
	// - 2 East US unreachable unreachable
	// - 3 West US success 200
}
