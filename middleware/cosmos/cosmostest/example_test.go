package cosmostest_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
)

// An account with three regions. The first region throttles one read, a fault of the kind a client has to live with.
func Example() {
	account, err := cosmostest.New(cosmostest.Config{Regions: []string{"West US", "East US", "North Europe"}})
	if err != nil {
		panic(err)
	}
	defer account.Close()
	account.CreateContainer("shop", "orders", cosmostest.Container{Paths: []string{"/customer"}})
	client := account.Client() // signs; a client under test would use account.Transport() below its layers

	send := func(method, region, path, body string) int {
		r, _ := http.NewRequest(method, account.RegionEndpoint(region)+path, strings.NewReader(body))
		r.Header.Set("x-ms-documentdb-partitionkey", `["ann"]`)
		resp, err := client.Do(r)
		if err != nil {
			fmt.Println(err)
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}

	fmt.Println("create:", send("POST", "West US", "/dbs/shop/colls/orders/docs", `{"id":"1","customer":"ann"}`))

	throttle := account.AddFault(cosmostest.Fault{
		Match:  cosmostest.Match{Region: "East US", Operations: cosmostest.DataReads()},
		Count:  1,
		Answer: cosmostest.Throttled(10 * time.Millisecond),
	})
	fmt.Println("read in East US:", send("GET", "East US", "/dbs/shop/colls/orders/docs/1", ""))
	fmt.Println("and again:", send("GET", "East US", "/dbs/shop/colls/orders/docs/1", ""), "after", throttle.Hits(), "throttled")

	account.SetWriteRegion("East US")
	fmt.Println("write in the old write region:", send("POST", "West US", "/dbs/shop/colls/orders/docs", `{"id":"2","customer":"ann"}`))
	fmt.Println("items:", len(account.Items("shop", "orders")), "requests in East US:", account.Sends("East US"))
	// Output:
	// create: 201
	// read in East US: 429
	// and again: 200 after 1 throttled
	// write in the old write region: 403
	// items: 1 requests in East US: 2
}
