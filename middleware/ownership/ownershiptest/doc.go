// Package ownershiptest is a simulated cluster whose keys change owner: nodes
// that serve a small key-value store, and a map service that says which node owns
// what. It is for testing clients, the layers of this module and others, while
// segments move, migrate, fail over and nodes die.
//
// A cluster runs on loopback sockets, or in memory for a testing/synctest bubble
// (Config.InMemory), where all its waiting is virtual time.
//
// The store is one for all nodes, as if every write were replicated before it is
// acknowledged; what a node may serve is decided by ownership, together with the
// write itself. So nothing acknowledged is ever lost by the cluster, and whatever
// gets lost is the client's doing.
//
//	GET    /kv/{key}  200 with ETag, or 404
//	PUT    /kv/{key}  201 or 200 with ETag; If-Match and If-None-Match: * are heeded (412)
//	DELETE /kv/{key}  204, or 404; If-Match is heeded
//	POST   /kv/{key}  adds the body's number to the value and answers the sum: not idempotent
package ownershiptest
