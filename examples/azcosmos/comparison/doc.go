// Package comparison runs one operation against one fault in three ways: with the official SDK alone, with a reroute stack alone, and with
// the SDK over that stack. Each run has a simulated account of its own and a synctest bubble of its own, so that two minutes of waiting
// take no time and every number is exact.
//
// RunPartitions is about a client rather than an operation: what it goes through when one partition of its home region dies.
package comparison
