// Package ownership is the dialect of services whose keys change owner: sharded
// and leader-based stores in which a node fails over, a shard migrates, or a
// preferred primary comes back.
//
// A node that is asked in vain says why with a Status, in a header that both
// ends agree on (Words). Dialect reads it on the client, Words.Reject writes it
// on the server. A Registry keeps the map of who owns what, reads it again when
// answers prove it outdated, in one fetch for all, and tells the layers Reroute
// and Route of package roundtrippers where to go.
//
//	registry, err := ownership.New(ownership.Config{Source: &ownership.HTTPSource{URL: "http://map.internal/map"}})
//	rt, err := roundtrippers.OwnershipBuilder{
//		Dialect: &ownership.Dialect{Key: ownership.PathKey("/kv/")},
//		Owners:  registry,
//	}.Build()
//	client := &http.Client{Transport: rt}
//
// The rules Z.. and A.. that comments and tests name are those of the project's
// reference on ownership churn.
package ownership
