// Package emulator makes an account of several regions out of one @vercel/cosmosdb-server: a server that somebody else wrote, so that what
// works over our own simulator is seen to work over another one as well.
//
// Each region is a front: a reverse proxy with an address of its own, all to the one server, so that every region has the same data at
// once. A front answers GET / itself, with the account's topology, and can be made to fail.
package emulator
