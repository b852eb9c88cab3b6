// Package roundtrippers holds the layers of reroute, one a file, and the builders
// that stack them in their standard orders: Builder for a service in several
// regions, APIBuilder for one API, OwnershipBuilder for keys that change owner.
//
// # Rules
//
// Comments throughout the module cite "DESIGN rule N". These are the rules:
//
//  1. Budgets: failover 3; a region that takes no writes on an account with
//     several write regions, and a region that left the account, 120 x 1 s; on an
//     account with one write region the former 3 at once, out of failover's;
//     session 2, or each region once; throttle 9 or 30 s; connection pool 1.
//  2. 429 stays at its endpoint, for the wished wait or 5 ms doubling; a wait
//     that does not fit ends it. 429/3092 fails over at once.
//  3. 449 stays in place, 10 ms doubling plus 0 to 5 ms, 30 s in all; the gateway
//     is told to leave it to us.
//  4. What must not run twice (stored procedures, writes with triggers, deletes by
//     partition key) is not re-sent after 408, 5xx or a connection that may have
//     carried it; it is where nothing can have run.
//  5. Sent or not is judged by the error's kind, and traced where it matters.
//     Unknown counts as sent.
//  6. Excluded regions are never used while another one is left.
//  7. What was not sent marks the endpoint; a bad answer does so only where no
//     partition breaker watches. Marks demote. After 60 s one operation probes.
//     Signing errors mark nothing and are final.
//  8. The topology is read by one shared flight, at most every 5 s, and may only
//     name hosts of the account.
//  9. Partition breakers (PPCB): 10 reads or 5 writes failing in a row; after 5 to
//     7.5 s one probe, and only its verdict counts.
//  10. Partition failover (PPAF): a write walks the regions; the one that confirms
//     it is remembered.
//  11. Partition key ranges: package partitions lists the gaps that are closed.
//  12. Hub header, hedging and query fan-out are not part of this.
//
// "Seed" is the target behaviour of the Rust driver, or of the client that a layer
// is modelled on. Ids such as R049, Z052, V042, X08 or B17 in tests name the
// scenarios that the tests were made from.
package roundtrippers
