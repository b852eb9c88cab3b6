// Package cosmos speaks Azure Cosmos DB for NoSQL in gateway mode: it knows what a request asks for, what every
// status and substatus means, and where an account's regions are.
//
// Open reads an account's topology and returns an Account, which is the middleware.Dialect that layers judge by and the
// owner of the regions.Registry that they route by. The requests themselves stay the caller's, signed by the SDK or
// whoever made them; nothing signed is touched.
package cosmos
