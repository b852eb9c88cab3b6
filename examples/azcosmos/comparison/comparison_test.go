package comparison

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reroute-go/reroute/examples/azcosmos/azadapter"
	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
)

// expected is what a row must be: what SDK 1.5.0 sends to each region and how it ends, how it ends with reroute, and the most that its
// budgets may send.
var expected = map[[2]string]struct {
	sdk     string
	outcome string
	most    int
}{
	{"503", "read"}:                 {"1/1/0 ok", "ok", 2},
	{"503", "upsert, single-write"}: {"1/0/0 503", "503", 4},
	{"503", "upsert, multi-write"}:  {"1/1/0 ok", "ok", 2},

	{"429, retry after 100 ms", "read"}:                 {"4/0/0 429/3200", "429/3200", 10},
	{"429, retry after 100 ms", "upsert, single-write"}: {"4/0/0 429/3200", "429/3200", 10},
	{"429, retry after 100 ms", "upsert, multi-write"}:  {"4/0/0 429/3200", "429/3200", 10},

	{"429/3092", "read"}:                 {"4/0/0 429/3092", "ok", 2},
	{"429/3092", "upsert, single-write"}: {"4/0/0 429/3092", "429/3092", 4},
	{"429/3092", "upsert, multi-write"}:  {"4/0/0 429/3092", "ok", 2},

	{"408", "read"}:                 {"1/1/0 ok", "ok", 2},
	{"408", "upsert, single-write"}: {"1/0/0 408", "408", 4},
	{"408", "upsert, multi-write"}:  {"1/0/0 408", "ok", 2},

	// The layer Partition looks at the ranges again and asks once more, before another region is asked.
	{"410/1002", "read"}:                 {"1/0/0 410/1002", "ok", 1 + 1 + 1},
	{"410/1002", "upsert, single-write"}: {"1/0/0 410/1002", "410/1002", 1 + 1 + 3},
	{"410/1002", "upsert, multi-write"}:  {"1/0/0 410/1002", "ok", 1 + 1 + 1},

	{"449", "read"}:                 {"1/0/0 449", "449", 36},
	{"449", "upsert, single-write"}: {"1/0/0 449", "449", 36},
	{"449", "upsert, multi-write"}:  {"1/0/0 449", "449", 36},

	{"404/1002", "read"}:                 {"2/0/0 404/1002", "404/1002", 3},
	{"404/1002", "upsert, single-write"}: {"2/0/0 404/1002", "404/1002", 3},
	{"404/1002", "upsert, multi-write"}:  {"1/1/0 ok", "ok", 2},

	{"403/3", "read"}:                 {"1/1/0 ok", "ok", 2},
	{"403/3", "upsert, single-write"}: {"122/0/0 403/3", "403/3", 4},
	{"403/3", "upsert, multi-write"}:  {"1/1/0 ok", "ok", 2},

	{"403/1008", "read"}:                 {"1/1/0 ok", "ok", 2},
	{"403/1008", "upsert, single-write"}: {"122/0/0 403/1008", "403/1008", 121},
	{"403/1008", "upsert, multi-write"}:  {"1/1/0 ok", "ok", 2},

	{"500", "read"}:                 {"2/1/0 ok", "ok", 2},
	{"500", "upsert, single-write"}: {"1/0/0 500", "500", 4},
	{"500", "upsert, multi-write"}:  {"1/0/0 500", "ok", 2},

	{"connection reset", "read"}:                 {"4/1/0 ok", "ok", 3},
	{"connection reset", "upsert, single-write"}: {"1/0/0 broken", "broken", 5},
	{"connection reset", "upsert, multi-write"}:  {"1/0/0 broken", "ok", 3},

	{"closed unanswered", "read"}:                 {"4/1/0 ok", "ok", 3},
	{"closed unanswered", "upsert, single-write"}: {"1/0/0 broken", "broken", 5},
	{"closed unanswered", "upsert, multi-write"}:  {"1/0/0 broken", "ok", 3},

	{"connection refused", "read"}:                 {"4/1/0 ok", "ok", 3},
	{"connection refused", "upsert, single-write"}: {"4/0/0 unreachable", "unreachable", 5},
	{"connection refused", "upsert, multi-write"}:  {"4/1/0 ok", "ok", 3},

	{"HTTP/2 stream aborted", "read"}:                 {"4/0/0 broken", "ok", 3},
	{"HTTP/2 stream aborted", "upsert, single-write"}: {"4/0/0 broken", "broken", 5},
	{"HTTP/2 stream aborted", "upsert, multi-write"}:  {"4/0/0 broken", "ok", 3},

	{"200, body cut", "read"}:                 {"4/1/0 ok", "ok", 3},
	{"200, body cut", "upsert, single-write"}: {"1/0/0 broken", "broken", 1},
	{"200, body cut", "upsert, multi-write"}:  {"1/0/0 broken", "broken", 1},

	{"write region moved", "read"}:                 {"1/0/0 ok", "ok", 1},
	{"write region moved", "upsert, single-write"}: {"1/1/0 ok", "ok", 2},
	{"write region moved", "upsert, multi-write"}:  {"1/0/0 ok", "ok", 1},
}

func TestEveryRowOfTheComparison(t *testing.T) {
	rows := Run(t, nil)
	t.Log("\n" + Markdown(rows))
	require.Len(t, rows, len(expected))
	for _, r := range rows {
		t.Run(r.Fault.Name+" "+r.Operation.Name, func(t *testing.T) {
			want, ok := expected[[2]string{r.Fault.Name, r.Operation.Name}]
			require.True(t, ok)
			require.Equal(t, want.sdk, fmt.Sprintf("%d/%d/%d %s", r.SDK.At[0], r.SDK.At[1], r.SDK.At[2], r.SDK.Outcome))
			require.Equal(t, want.outcome, r.Both.Outcome)
			require.Equal(t, r.Stack.Outcome, r.Both.Outcome)
			require.Equal(t, r.Stack.At, r.Both.At, "the SDK adds nothing")
			require.LessOrEqual(t, r.Both.Sends, want.most)
			if r.SDK.Outcome == "ok" {
				require.Equal(t, "ok", r.Both.Outcome, "nothing that worked may fail")
				require.LessOrEqual(t, r.Both.Took, r.SDK.Took)
			}
			if r.Both.Err != nil {
				var ours *azadapter.Error
				if r.Both.Outcome != "410/1002" { // the SDK's own business
					require.ErrorAs(t, r.Both.Err, &ours)
				}
			}
		})
	}
}

func TestAWriteRegionThatTakesNoWritesCostsTheSDKTwoMinutesAndUsNone(t *testing.T) { // issue, done when 5
	r := Compare(t, faultNamed(t, "403/3"), Operations[1], nil)
	require.Greater(t, r.SDK.Sends, 100)
	require.GreaterOrEqual(t, r.SDK.Took, 2*time.Minute)
	require.Greater(t, r.SDK.Account, 50, "and that many reads of the account")
	require.Equal(t, 4, r.Both.Sends)
	require.LessOrEqual(t, r.Both.Took, time.Second)
	require.LessOrEqual(t, r.Both.Account, 1)
	require.ErrorIs(t, r.Both.Err, middleware.ErrBudgetSpent)
	var answered *azcore.ResponseError
	require.ErrorAs(t, r.Both.Err, &answered, "as the SDK's callers are used to")
	require.Equal(t, 403, answered.StatusCode)
}

func TestAWriteLandsOnTheNewHubAsSoonAsTheTopologyNamesIt(t *testing.T) { // issue, done when 5
	synctest.Test(t, func(t *testing.T) {
		a, transport := account(t, Operations[1], false)
		sends := &counter{next: transport, account: a}
		s := &setup{t: t, account: a, base: sends, op: Operations[1]}
		upsert := sdkOverStack(s, nil)
		ctx := context.Background()
		_, err := upsert(ctx)
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		sends.reset()

		a.HoldTopology(0) // the document lags behind the truth
		a.SetWriteRegion(regionNames[1])
		end, err := upsert(ctx)
		require.Error(t, err)
		require.Equal(t, "403/3", end)
		at, _ := sends.total()
		require.Equal(t, [3]int{4, 0, 0}, at, "the budget, and nothing on top")

		time.Sleep(10 * time.Second)
		sends.reset()
		a.ReleaseTopology()
		_, err = upsert(ctx)
		require.NoError(t, err)
		at, _ = sends.total()
		require.Equal(t, 1, at[1])
		require.LessOrEqual(t, at[0], 1)

		sends.reset()
		_, err = upsert(ctx)
		require.NoError(t, err)
		at, _ = sends.total()
		require.Equal(t, [3]int{0, 1, 0}, at, "and stays there")
	})
}

func TestAThrottledRangeFeedEndsWithUsAndNotWithTheSDK(t *testing.T) {
	throttled := func(a *cosmostest.Account) {
		a.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: []cosmostest.Operation{cosmostest.ReadRanges}}, Answer: cosmostest.Throttled(10 * time.Millisecond)})
	}
	feedRanges := func(t *testing.T, options func(*setup) *azcosmos.ClientOptions) (sends int, err error) {
		synctest.Test(t, func(t *testing.T) {
			a, transport := account(t, Operations[0], false)
			throttled(a)
			items := client(&setup{t: t, account: a, base: transport}, options(&setup{t: t, account: a, base: transport}))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, err = items.ReadFeedRanges(ctx, nil)
			time.Sleep(time.Minute) // the SDK goes on without its caller
			sends = a.Sends("", cosmostest.ReadRanges)
			a.ClearFaults()
			time.Sleep(time.Minute)
		})
		return sends, err
	}
	sends, err := feedRanges(t, func(s *setup) *azcosmos.ClientOptions {
		return &azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: plain{s.base}}}
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Greater(t, sends, 100)

	sends, err = feedRanges(t, func(s *setup) *azcosmos.ClientOptions { return azadapter.ClientOptions(stack(s, nil)) })
	require.Equal(t, 10, sends)
	require.ErrorIs(t, err, middleware.ErrBudgetSpent)
	require.Contains(t, err.Error(), "429/3200")
}

func TestTheSDKStillMendsItsRangesAfterA410(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, transport := account(t, Operations[1], false)
		s := &setup{t: t, account: a, base: transport}
		items := client(s, azadapter.ClientOptions(stack(s, nil)))
		ctx := context.Background()
		_, err := items.UpsertItem(ctx, azcosmos.NewPartitionKeyString("p"), []byte(item), nil)
		require.NoError(t, err)
		many := func() error {
			r, err := items.ReadManyItems(ctx, []azcosmos.ItemIdentity{{ID: "1", PartitionKey: azcosmos.NewPartitionKeyString("p")}}, nil)
			if err == nil {
				require.Len(t, r.Items, 1)
			}
			return err
		}
		require.NoError(t, many())
		ranges := a.Sends("", cosmostest.ReadRanges)
		// As often as one operation of ours asks; what the SDK asks after that is a new one.
		a.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.DataReads()}, Count: 4, Answer: cosmostest.Error(410, 1002)})
		require.NoError(t, many())
		require.Greater(t, a.Sends("", cosmostest.ReadRanges), ranges)
	})
}

// Whatever happens, in whatever order: the SDK over the stack sends what the stack alone sends, and no more than the budgets allow.
func TestTheSDKAddsNoSendToAnyScript(t *testing.T) {
	kinds := []cosmostest.Answer{
		{}, // a good answer
		cosmostest.Error(503, 0), cosmostest.Error(500, 0), cosmostest.Error(502, 0), cosmostest.Error(408, 0), cosmostest.Error(449, 0),
		cosmostest.Throttled(0), cosmostest.Throttled(100 * time.Millisecond), cosmostest.Error(429, 3092),
		cosmostest.Error(403, 3), cosmostest.Error(403, 1008), cosmostest.Error(404, 1002), cosmostest.Error(410, 1002),
		cosmostest.Error(409, 0), cosmostest.Error(401, 0), {Reset: true}, {Refuse: true}, {CutAfter: 1}, {Status: 503, CutAfter: 2}, {CutHeader: true},
	}
	most := mostSends(t)
	rapid.Check(t, func(rt *rapid.T) {
		script := rapid.SliceOfN(rapid.IntRange(0, len(kinds)-1), 1, 30).Draw(rt, "script")
		op := rapid.SampledFrom(Operations).Draw(rt, "operation")
		fault := Fault{Name: "script", Cause: func(a *cosmostest.Account) {
			var n atomic.Int32
			a.AddFault(cosmostest.Fault{Match: cosmostest.Match{Operations: cosmostest.Data()}, Respond: func(cosmostest.Request) cosmostest.Answer {
				return kinds[script[(int(n.Add(1))-1)%len(script)]] // for ever
			}})
		}}
		alone := run(t, fault, op, func(s *setup) action { return stackAlone(s, nil) })
		both := run(t, fault, op, func(s *setup) action { return sdkOverStack(s, nil) })
		if both.Sends > alone.Sends || both.At != alone.At {
			rt.Fatalf("the SDK over reroute sent %v, reroute alone %v", both, alone)
		}
		if both.Sends > most {
			rt.Fatalf("%d sends, and the budgets allow %d", both.Sends, most)
		}
	})
}

// mostSends is the bound that the stack itself names.
func mostSends(t *testing.T) (n int) {
	synctest.Test(t, func(t *testing.T) {
		a, transport := account(t, Operations[0], false)
		text := middleware.Describe(stack(&setup{t: t, account: a, base: transport}, nil).Next)
		m := regexp.MustCompile(`at most (\d+) sends`).FindStringSubmatch(text)
		require.NotNil(t, m, text)
		n, _ = strconv.Atoi(m[1])
	})
	return n
}

func faultNamed(t *testing.T, name string) Fault {
	for _, f := range Faults {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no fault %q", name)
	return Fault{}
}
