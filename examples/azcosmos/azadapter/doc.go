// Package azadapter puts a reroute stack under the official Azure SDK, azcosmos, so that the stack's retries are the only ones.
//
//	account, err := cosmos.Open(ctx, endpoint, cosmos.SharedKey(key), cosmos.Options{PreferredRegions: regions})
//	transport, err := azadapter.New(roundtrippers.Builder{Dialect: account, Regions: account.Regions, Partitions: account.Partitions})
//	client, err := azcosmos.NewClientWithKey(endpoint, credential, azadapter.ClientOptions(transport))
//
// The SDK has retries of its own that no option switches off: azcosmos 1.5.0 repeats 403/3 for two minutes, a read whose answer breaks
// off five times, a throttled partition key range feed without end. Below it every one of them would start the stack's budgets anew. So
// the stack reads answers whole (Whole), and what it gives up on reaches the SDK as an *Error that the SDK does not retry (Transport).
// SDK and stack together then send as often as the stack alone.
//
// Partitions is what lets a partition that is dead in one region move alone, which the SDK has nothing for. Without it answers of 5xx mark
// the whole region, so that one dead partition takes all others with it, and one that hangs is never given up.
//
// What stays with the SDK: 410, which its ReadMany and change feed answer by reading the partition key ranges again, up to three times;
// 401; and everything that no retry mends. It also goes on reading the account for itself, through the same stack.
package azadapter
