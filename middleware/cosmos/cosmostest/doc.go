// Package cosmostest is a simulated Azure Cosmos DB account: several regions over real HTTP, replication with lag, topology that
// changes at run time, and scripted faults. It is for testing clients, the layers of this module and others, against what a real
// account does on its bad days.
//
// An account runs on loopback sockets, or in memory for a testing/synctest bubble (Config.InMemory), where all its waiting is virtual
// time. It speaks the gateway's REST dialect: account document, databases, containers, items, batches, simple queries, feeds, change
// feed, stored procedures, partition key ranges, with etags, session tokens, and verified signatures.
//
// What it does not have: throughput accounting (429 comes from faults), indexes, ORDER BY and joins, triggers that run, users and
// permissions, and durable storage. Database and container definitions are the same in every region at once; only items lag.
package cosmostest
