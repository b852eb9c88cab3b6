package cosmostest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Writers and readers work while regions fail, lag, fail over and split. What was acknowledged must be there when all is well again.
func TestAcknowledgedWritesArePresentAfterHealing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newStore(t, Config{InMemory: true, Ranges: 4, ReplicationLag: 50 * time.Millisecond})
		c.http.Timeout = time.Second
		c.AddFault(Fault{Match: Match{Operations: DataWrites()}, Probability: 0.1, Seed: 1, AfterApply: true, Answer: Error(503, 0)})
		c.AddFault(Fault{Match: Match{Operations: DataWrites()}, Probability: 0.1, Seed: 2, Answer: Answer{Reset: true}})
		c.AddFault(Fault{Match: Match{Operations: DataReads()}, Probability: 0.1, Seed: 3, Answer: Answer{CutAfter: 20}})
		var mu sync.Mutex
		acknowledged := map[string]bool{}
		var work sync.WaitGroup
		stop := make(chan struct{})
		regions := []string{west, east, north}
		for w := range 8 {
			work.Go(func() {
				draws := rand.New(rand.NewPCG(uint64(w), 7))
				for i := range 60 {
					id, key := fmt.Sprintf("%d-%d", w, i), fmt.Sprintf(`["k%d"]`, draws.IntN(20))
					body := fmt.Sprintf(`{"id":%q,"pk":%s}`, id, strings.Trim(key, "[]"))
					for _, region := range regions {
						ans, err := c.try(region, http.MethodPost, "/dbs/db/colls/c/docs", body, "x-ms-documentdb-partitionkey", key)
						if err == nil && (ans.status == 201 || ans.status == 409) {
							mu.Lock()
							acknowledged[id] = true
							mu.Unlock()
							break
						}
					}
					_, _ = c.try(regions[draws.IntN(3)], http.MethodGet, "/dbs/db/colls/c/docs/"+id, "", "x-ms-documentdb-partitionkey", key)
					time.Sleep(time.Duration(draws.IntN(20)) * time.Millisecond)
				}
			})
		}
		var chaos sync.WaitGroup
		chaos.Go(func() {
			draws := rand.New(rand.NewPCG(99, 7))
			for {
				select {
				case <-stop:
					return
				case <-time.After(30 * time.Millisecond):
				}
				region := regions[draws.IntN(3)]
				switch draws.IntN(7) {
				case 0:
					c.SetWriteRegion(region)
				case 1:
					c.SetOffline(region, Outage(1+draws.IntN(3)))
				case 2:
					c.SetOnline(region)
				case 3:
					c.SetReplicationLag(region, time.Duration(draws.IntN(200))*time.Millisecond)
				case 4:
					ranges := c.Ranges("db", "c")
					c.Split("db", "c", ranges[draws.IntN(len(ranges))].ID)
				case 5:
					if ranges := c.Ranges("db", "c"); len(ranges) > 1 {
						i := draws.IntN(len(ranges) - 1)
						c.Merge("db", "c", ranges[i].ID, ranges[i+1].ID)
					}
				case 6:
					c.FailoverPartition("db", "c", "", []string{"", region}[draws.IntN(2)])
				}
			}
		})
		work.Wait()
		close(stop)
		chaos.Wait()

		c.ClearFaults()
		c.FailoverPartition("db", "c", "", "")
		for _, region := range regions {
			c.SetOnline(region)
			c.SetReplicationLag(region, 0)
		}
		held := map[string]bool{}
		for _, it := range c.Items("db", "c") {
			held[it.ID] = true
		}
		require.Greater(t, len(acknowledged), 100)
		for id := range acknowledged {
			require.True(t, held[id], "acknowledged %s is lost", id)
		}
		for _, region := range regions {
			require.Len(t, c.ItemsIn(region, "db", "c"), len(held))
		}
	})
}

// A hundred requests hang, sleep or run while the controls are used: nothing may wait for them.
func TestNoLockIsHeldOverAWait(t *testing.T) {
	inBoth(t, Config{}, func(t *testing.T, c *client) {
		c.CreateContainer("db", "c", Container{})
		c.AddFault(Fault{Match: Match{Region: east}, Answer: Answer{Hang: true}})
		c.SetOffline(north, BlackHole)
		var hanging sync.WaitGroup
		for i := range 100 {
			hanging.Go(func() { _, err := c.try([]string{east, north}[i%2], "GET", "/dbs/db", ""); require.Error(t, err) })
		}
		for c.Sends("") < 100 { // the arrivals are logged before they hang
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, 201, c.item(west, "POST", "", `{"id":"a","pk":"p"}`).status)
		c.SetWriteRegion(east)
		c.Close()
		hanging.Wait()
	})
}
