package roundtrippers_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// sixteen is an account of three regions with containers of 16 partitions.
var sixteen = setup{sim: cosmostest.Config{Ranges: 16}}

// trip reads a key of a range that is dead in west until the reads begin elsewhere.
func (w *placed) trip(key string) {
	w.t.Helper()
	for range 10 {
		require.Equal(w.t, []string{west, east}, w.must(w.get(w.t.Context(), key)), "it is tried, and found dead")
	}
	require.Equal(w.t, []string{east}, w.must(w.get(w.t.Context(), key)))
	w.forget()
}

func TestADeadPartitionMovesAlone(t *testing.T) { // issue 3, Done-when 4; R105, B58, B65, D20
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		dead := w.key("1")
		var others []string
		for _, r := range w.Ranges("d", "c") {
			if r.ID != "1" {
				others = append(others, w.key(r.ID))
			}
		}
		w.CreateContainer("d", "twin", cosmostest.Container{})
		w.warm(append(others, dead)...)
		w.sick(cosmostest.Error(503, 0), "1", west)
		twin := func() result {
			return w.send(t.Context(), http.MethodPost, "/dbs/d/colls/twin/docs", `{"id":"i","pk":"`+dead+`"}`, keyHeader, quoted(dead), "X-Ms-Documentdb-Is-Upsert", "True")
		}
		require.Equal(t, []string{west}, w.must(twin()))
		require.Equal(t, "1", w.RangeOf("d", "twin", quoted(dead)), "the same id in both containers")

		for range 10 {
			require.Equal(t, []string{west, east}, w.must(w.get(t.Context(), dead)), "below the threshold each is tried at home")
		}
		opened := w.events(middleware.BreakerOpened)
		require.Len(t, opened, 1)
		require.Equal(t, "1", opened[0].Range)
		require.EqualValues(t, west, opened[0].Region)
		for range 5 {
			r := w.get(t.Context(), dead)
			require.Equal(t, []string{east}, w.must(r), "at the first attempt")
			require.True(t, r.report.Attempts[0].Override)
			require.False(t, r.report.Attempts[0].Probe)
			require.Equal(t, "1", r.report.Attempts[0].Range)
			require.Contains(t, r.report.String(), "range 1 override")
		}
		for _, key := range others {
			r := w.get(t.Context(), key)
			require.Equal(t, []string{west}, w.must(r), "all others stay")
			require.False(t, r.report.Attempts[0].Override)
		}
		require.Equal(t, []string{west}, w.must(w.send(t.Context(), http.MethodGet, "/dbs/d/colls/twin/docs/i", "", keyHeader, quoted(dead))))
		require.Equal(t, []string{west}, w.must(w.send(t.Context(), http.MethodGet, "/dbs/d/colls/c", "")), "metadata too")
		require.Empty(t, w.marked())
	})
}

func TestARecoveredPartitionComesHomeByOneProbe(t *testing.T) { // R114
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		fault := w.sick(cosmostest.Error(503, 0), "1", west)
		w.trip(key)
		fault.heal()
		tripped := time.Now()
		for {
			r := w.get(t.Context(), key)
			if a := r.report.Attempts[0]; a.Probe {
				require.Equal(t, []string{west}, w.must(r))
				require.Contains(t, r.report.String(), "probe")
				break
			}
			require.Equal(t, []string{east}, w.must(r))
			time.Sleep(50 * time.Millisecond)
		}
		away := time.Since(tripped)
		require.True(t, 5*time.Second <= away && away <= 7550*time.Millisecond, "%v", away)
		closed := w.events(middleware.BreakerClosed)
		require.Len(t, closed, 1)
		require.Equal(t, "1", closed[0].Range)
		w.forget()
		for range 10 {
			require.Equal(t, []string{west}, w.must(w.get(t.Context(), key)))
		}
		require.Empty(t, w.events(middleware.BreakerOpened, middleware.BreakerClosed))
	})
}

func TestOneOperationProbesAndOnlyItsVerdictCounts(t *testing.T) { // R116, B57
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		fault := w.sick(cosmostest.Error(503, 0), "1", west)
		w.trip(key)
		fault.heal()
		time.Sleep(8 * time.Second)

		w.sick(cosmostest.Answer{Delay: time.Second}, "1", west)
		w.crowd(50, func(ctx context.Context) { w.must(w.get(ctx, key)) })
		require.Equal(t, 1, w.data(west), "one of fifty")
		require.Equal(t, 49, w.data(east))
		require.Len(t, w.events(middleware.BreakerClosed), 1)
		w.forget()
		w.crowd(50, func(ctx context.Context) { w.must(w.get(ctx, key)) })
		require.Equal(t, 50, w.data(west))
	})
}

func TestWhileAProbeIsOutNobodysSuccessElsewhereClosesTheBreaker(t *testing.T) { // G29, R113 with the ruling: the probe's own verdict
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		fault := w.sick(cosmostest.Error(503, 0), "1", west)
		w.trip(key)
		fault.heal()
		time.Sleep(8 * time.Second)
		slow := w.sick(cosmostest.Answer{Delay: 5 * time.Second, Status: 503}, "1", west)
		done := make(chan result)
		go func() { done <- w.get(t.Context(), key) }()
		time.Sleep(time.Second)
		for range 20 {
			require.Equal(t, []string{east}, w.must(w.get(t.Context(), key)), "away until the probe is back")
			time.Sleep(100 * time.Millisecond)
		}
		probe := <-done
		require.Equal(t, []string{west, east}, w.must(probe), "the probe fails, its operation does not")
		require.True(t, probe.report.Attempts[0].Probe)
		rearmed := w.events(middleware.BreakerOpened)
		require.Len(t, rearmed, 1)
		require.Equal(t, "rearmed", rearmed[0].Code)
		slow.heal()

		// R112 with the ruling of rule 9: a failed probe waits again, it does not need a full threshold.
		w.forget()
		at := time.Now()
		for {
			r := w.get(t.Context(), key)
			if r.report.Attempts[0].Probe {
				break
			}
			require.Equal(t, []string{east}, w.must(r))
			time.Sleep(50 * time.Millisecond)
		}
		again := time.Since(at)
		require.True(t, 5*time.Second-200*time.Millisecond <= again && again <= 7550*time.Millisecond, "%v", again)
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), key)))
	})
}

func TestAProbeThatIsCancelledIsFree(t *testing.T) { // rule 9; gobreaker: a permit whose done is never called blocks for ever
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		fault := w.sick(cosmostest.Error(503, 0), "1", west)
		w.trip(key)
		fault.heal()
		time.Sleep(8 * time.Second)
		hung := w.sick(cosmostest.Answer{Hang: true}, "1", west)
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Second, cancel)
			r := w.get(ctx, key)
			require.ErrorIs(t, r.err, context.Canceled)
			require.True(t, r.report.Attempts[0].Probe, "each next one probes at once")
		}
		hung.heal()
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), key)))
		require.Len(t, w.events(middleware.BreakerClosed), 1)
	})
}

func TestAProbeWhoseTransportPanicsIsFree(t *testing.T) { // X16
	panics := false
	s := sixteen
	s.stack.PerAttempt = []middleware.Layer{middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
		return middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
			if panics {
				panics = false
				panic("a layer of the user's")
			}
			return next.RoundTrip(req)
		})
	})}
	inPartitions(t, s, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		fault := w.sick(cosmostest.Error(503, 0), "1", west)
		w.trip(key)
		fault.heal()
		time.Sleep(8 * time.Second)
		panics = true
		require.Panics(t, func() { w.get(t.Context(), key) })
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), key)))
	})
}

func TestAProbeThatTheRouteDoesNotTakeIsFree(t *testing.T) { // the endpoint's mark comes before the partition's probe
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key, other := w.key("1"), w.key("2")
		w.warm(key, other)
		fault := w.sick(cosmostest.Error(503, 0), "1", west)
		w.trip(key)
		fault.heal()
		w.SetOffline(west, cosmostest.Refused)
		require.Equal(t, []string{west, west, east}, w.must(w.get(t.Context(), other)))
		require.Equal(t, []string{west}, w.marked())
		w.SetOnline(west)
		time.Sleep(30 * time.Second)
		for range 5 {
			r := w.get(t.Context(), key)
			require.Equal(t, []string{east}, w.must(r))
			require.False(t, r.report.Attempts[0].Probe)
		}
		time.Sleep(31 * time.Second)
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), other)), "the endpoint is probed")
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), key)), "and the partition at once after it")
		require.Len(t, w.events(middleware.BreakerClosed), 1)
	})
}

func TestAPartitionThatIsDeadEverywhereKeepsItsUsualOrder(t *testing.T) { // R108, B63
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		fault := w.sick(cosmostest.Error(503, 0), "1", west, east, north)
		for range 12 {
			require.Equal(t, "503", w.get(t.Context(), key).code)
		}
		require.Len(t, w.events(middleware.BreakerOpened), 3)
		w.forget()
		require.Equal(t, "503", w.get(t.Context(), key).code)
		require.Equal(t, []string{west, east, north, west}, w.path())
		fault.heal()
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), key)))
	})
}

func TestAHungPartitionMovesAlthoughOnlyCallersDeadlinesEndIt(t *testing.T) { // rule 9
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key, other := w.key("1"), w.key("2")
		w.warm(key, other)
		w.sick(cosmostest.Answer{Hang: true}, "1", west)
		within := func(d time.Duration, key string) result {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			return w.get(ctx, key)
		}
		for range 20 {
			require.Equal(t, "error: 408/20008", within(900*time.Millisecond, key).code, "too short to say anything of the partition")
		}
		for range 20 { // a caller that leaves says nothing however long it waited
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(2*time.Second, cancel)
			require.ErrorIs(t, w.get(ctx, key).err, context.Canceled)
		}
		require.Zero(t, w.account.Partitions.Tracked())
		for range 10 {
			require.ErrorIs(t, within(2*time.Second, key).err, context.DeadlineExceeded)
		}
		require.Equal(t, []string{east}, w.must(within(2*time.Second, key)))
		require.Equal(t, []string{west}, w.must(within(2*time.Second, other)))
		require.Empty(t, w.marked())
	})
}

func TestADeadlineThatEndsAWaitDoesNotSpeakAgainstThePartition(t *testing.T) {
	s := sixteen
	s.stack.Breaker.MinAttempt = time.Millisecond
	s.open.Partitions.Failover = partitions.FailoverOptions{ReadFailures: 1}
	inPartitions(t, s, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.sick(cosmostest.Answer{Delay: time.Second, Status: 429, Header: map[string]string{"x-ms-retry-after-ms": "500"}}, "1", west)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(1200*time.Millisecond, func() { cancel(context.DeadlineExceeded) })
		r := w.get(deadlined{ctx}, key)
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		require.Equal(t, 1, r.report.Sends)
		require.Zero(t, w.account.Partitions.Tracked(), "the region had answered")
	})
}

// deadlined is a context that ends by a deadline which it did not tell.
type deadlined struct{ context.Context }

func (d deadlined) Err() error {
	if d.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

func TestExcludedRegionsAreNotUsedWhenTrippedEither(t *testing.T) { // DESIGN rule 6; R117
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		fault := w.sick(cosmostest.Error(503, 0), "1", west)
		w.trip(key)
		require.Equal(t, []string{north}, w.must(w.get(excluding(t.Context(), east), key)))
		require.Equal(t, "503", w.get(excluding(t.Context(), east, north), key).code, "where else?")
		require.Equal(t, []string{west, west, west, west}, w.path()[1:])
		fault.heal()
		time.Sleep(8 * time.Second)
		w.forget()
		require.Equal(t, []string{east}, w.must(w.get(excluding(t.Context(), west), key)), "no probe of a region that the caller excludes")
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), key)))
	})
}

func TestAnOperationThatExcludesARegionDoesNotHoldItsProbe(t *testing.T) {
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		fault := w.sick(cosmostest.Error(503, 0), "1", west)
		w.trip(key)
		fault.heal()
		time.Sleep(8 * time.Second)
		w.sick(cosmostest.Answer{Delay: 5 * time.Second}, "1", east)
		done := make(chan result)
		go func() { done <- w.get(excluding(t.Context(), west), key) }()
		time.Sleep(time.Second)
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), key)))
		require.Equal(t, []string{east}, w.must(<-done))
	})
}

func TestARegionBehindTheOneThatServesIsNoReasonToSpeakOfAnOverride(t *testing.T) {
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.sick(cosmostest.Error(503, 0), "1", east)
		for range 10 {
			require.Equal(t, []string{east, north}, w.must(w.get(excluding(t.Context(), west), key)))
		}
		require.Len(t, w.events(middleware.BreakerOpened), 1)
		r := w.get(t.Context(), key)
		require.Equal(t, []string{west}, w.must(r))
		require.False(t, r.report.Attempts[0].Override, "that is the usual order")
		r = w.get(excluding(t.Context(), west), key)
		require.Equal(t, []string{north}, w.must(r))
		require.True(t, r.report.Attempts[0].Override)
	})
}

func TestWritesMoveAfterFiveFailuresWhereSeveralRegionsTakeThem(t *testing.T) { // R106, N094, R117
	s := sixteen
	s.sim.MultiWrite = true
	inPartitions(t, s, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Operations: cosmostest.DataWrites(), Range: "1"}, Answer: cosmostest.Error(503, 0)})
		for range 5 {
			require.Equal(t, []string{west, east}, w.must(w.upsert(t.Context(), key)))
		}
		require.Equal(t, []string{east}, w.must(w.upsert(t.Context(), key)))
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), key)), "its reads are healthy")
		require.Empty(t, w.marked())
	})
}

func TestEndpointsAreMarkedOnlyWhereNoPartitionIsWatched(t *testing.T) { // DESIGN rule 7, R119, N093
	off := false
	for name, row := range map[string]struct {
		change func(*setup)
		send   func(w *placed, key string) result
		marks  bool
	}{
		"a read of a partition": {nil, func(w *placed, key string) result { return w.get(w.t.Context(), key) }, false},
		"a query without a key": {nil, func(w *placed, _ string) result {
			return w.send(w.t.Context(), http.MethodPost, items, `{"query":"SELECT * FROM c"}`, keyHeader, "", "Content-Type", "application/query+json", "X-Ms-Documentdb-Isquery", "True", "X-Ms-Documentdb-Query-Enablecrosspartition", "True")
		}, true},
		"metadata":                 {nil, func(w *placed, _ string) result { return w.send(w.t.Context(), http.MethodGet, "/dbs/d/colls/c", "") }, true},
		"the write of one hub":     {nil, func(w *placed, key string) result { return w.upsert(w.t.Context(), key) }, true},
		"a write of several":       {func(s *setup) { s.sim.MultiWrite = true }, func(w *placed, key string) result { return w.upsert(w.t.Context(), key) }, false},
		"a write that fails alone": {func(s *setup) { s.sim.PartitionFailover = &yes }, func(w *placed, key string) result { return w.upsert(w.t.Context(), key) }, false},
		"breakers off": {func(s *setup) { s.open.Partitions.Failover.Enabled = &off },
			func(w *placed, key string) result { return w.get(w.t.Context(), key) }, true},
		"only one region left": {nil, func(w *placed, key string) result { return w.get(excluding(w.t.Context(), east, north), key) }, false},
		"only one region at all": {func(s *setup) { s.sim.Regions = []string{west} },
			func(w *placed, key string) result { return w.get(w.t.Context(), key) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := sixteen
			if row.change != nil {
				row.change(&s)
			}
			inPartitions(t, s, func(t *testing.T, w *placed) {
				key := w.key("1")
				w.warm(key)
				w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west}, Answer: cosmostest.Error(503, 0)})
				row.send(w, key)
				require.Equal(t, row.marks, len(w.marked()) == 1, w.marked())
			})
		})
	}
}

func TestWhatWasCertainlyNotSentMarksTheEndpointAndCountsForThePartition(t *testing.T) { // R003 with the ruling of rules 7 and 9: both
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.SetOffline(west, cosmostest.Refused)
		require.Equal(t, []string{west, west, east}, w.must(w.get(t.Context(), key)))
		require.Equal(t, []string{west}, w.marked())
		require.Equal(t, 1, w.account.Partitions.Tracked())
	})
}

func TestEveryServerErrorCounts(t *testing.T) { // gap 5: the driver once counted 503 alone
	counted := map[string]cosmostest.Answer{
		"500": cosmostest.Error(500, 0), "501": cosmostest.Error(501, 0), "502": cosmostest.Error(502, 0), "503": cosmostest.Error(503, 0),
		"504": cosmostest.Error(504, 0), "507": cosmostest.Error(507, 0), "599": cosmostest.Error(599, 0), "503/21008": cosmostest.Error(503, 21008),
		"408": cosmostest.Error(408, 0), "410": cosmostest.Error(410, 0), "429/3092": cosmostest.Error(429, 3092),
		"reset": {Reset: true}, "refused": {Refuse: true},
	}
	quiet := map[string]cosmostest.Answer{
		"404": cosmostest.Error(404, 0), "409": cosmostest.Error(409, 0), "412": cosmostest.Error(412, 0), "400": cosmostest.Error(400, 0),
		"401": cosmostest.Error(401, 0), "403": cosmostest.Error(403, 0), "429": cosmostest.Throttled(time.Millisecond), "449": cosmostest.Error(449, 0),
		"404/1002": cosmostest.Error(404, 1002), "410/1002": cosmostest.Error(410, 1002),
	}
	for name, answer := range counted {
		t.Run(name, func(t *testing.T) {
			inPartitions(t, sixteen, func(t *testing.T, w *placed) {
				key := w.key("1")
				w.warm(key)
				w.sick(answer, "1", west)
				driver := new(naiveBreaker)
				for range 10 {
					r := w.get(t.Context(), key)
					w.must(r)
					driver.saw(r)
				}
				if name != "503" && name != "503/21008" && name != "408" && name != "429/3092" {
					require.Zero(t, *driver, "the harm: what counts the named few never moves away")
				}
				require.Equal(t, []string{east}, w.must(w.get(t.Context(), key)))
			})
		})
	}
	for name, answer := range quiet {
		t.Run(name+" does not", func(t *testing.T) {
			inPartitions(t, sixteen, func(t *testing.T, w *placed) {
				key := w.key("1")
				w.warm(key)
				w.sick(answer, "1", west)
				for range 12 {
					w.get(t.Context(), key)
				}
				require.Zero(t, w.account.Partitions.Tracked())
			})
		})
	}
}

// naiveBreaker counts what .NET counts (other-sdks 2.2).
type naiveBreaker int

func (n *naiveBreaker) saw(r result) {
	switch a := r.report.Attempts[0]; {
	case a.Status == 503, a.Status == 408, a.Status == 429 && a.Substatus == 3092:
		*n++
	}
}

func TestASuccessStartsTheCountAnew(t *testing.T) { // rule 9: consecutive
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.AddFault(cosmostest.Fault{Match: cosmostest.Match{Region: west, Range: "1", Operations: cosmostest.Data()}, Probability: 0.5, Seed: 7, Answer: cosmostest.Error(503, 0)})
		for range 100 {
			w.must(w.get(t.Context(), key))
		}
		require.Greater(t, w.data(east), 20)
		require.Empty(t, w.events(middleware.BreakerOpened))
	})
}

func TestAQuietWindowStartsTheCountAnew(t *testing.T) { // R107
	inPartitions(t, sixteen, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		w.sick(cosmostest.Error(503, 0), "1", west)
		for range 3 {
			for range 9 {
				w.must(w.get(t.Context(), key))
			}
			time.Sleep(5*time.Minute + time.Second)
		}
		require.Empty(t, w.events(middleware.BreakerOpened))
	})
}

func TestPartitionFailoverOptionsAreATypeOfTheirOwn(t *testing.T) { // gap 6
	s := sixteen
	s.open.Partitions.Failover = partitions.FailoverOptions{ReadFailures: 2, UnavailabilityDuration: time.Second}
	inPartitions(t, s, func(t *testing.T, w *placed) {
		key := w.key("1")
		w.warm(key)
		fault := w.sick(cosmostest.Error(503, 0), "1", west)
		w.must(w.get(t.Context(), key))
		w.must(w.get(t.Context(), key))
		require.Equal(t, []string{east}, w.must(w.get(t.Context(), key)))
		fault.heal()
		time.Sleep(1500 * time.Millisecond)
		require.Equal(t, []string{west}, w.must(w.get(t.Context(), key)))
	})
}

func TestJunkOptionsAreRefusedByNameAndValue(t *testing.T) { // gap 6
	sim := cosmostest.Start(t, cosmostest.Config{InMemory: true})
	open := func(o partitions.FailoverOptions) error {
		_, err := cosmos.Open(t.Context(), sim.Endpoint(), cosmos.SharedKey(sim.Key()), cosmos.Options{Transport: sim.Transport(), Partitions: partitions.Config{Failover: o}})
		return err
	}
	require.ErrorContains(t, open(partitions.FailoverOptions{ReadFailures: -3}), "FailoverOptions.ReadFailures is -3")
	t.Setenv("AZURE_COSMOS_PPCB_WRITE_FAILURE_THRESHOLD", "many")
	require.ErrorContains(t, open(partitions.FailoverOptions{}), `AZURE_COSMOS_PPCB_WRITE_FAILURE_THRESHOLD is "many"`)
	require.NoError(t, open(partitions.FailoverOptions{WriteFailures: 3}), "what is set comes before the environment")
	require.Zero(t, sim.Sends("")-1, "nothing is asked before")
}

func TestABreakerNamesWhatIsWrongWithIt(t *testing.T) {
	_, err := roundtrippers.Breaker{}.Wrap(http.DefaultTransport)
	require.ErrorContains(t, err, "Dialect")
	_, err = roundtrippers.Partition{}.Wrap(http.DefaultTransport)
	require.ErrorContains(t, err, "Dialect")
	require.False(t, errors.Is(err, context.Canceled))
}
