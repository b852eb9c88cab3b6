package storm

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
)

// faultHeader carries the fault that strikes a request to the simulator, so that
// the schedule and not the order of arrival decides who is struck.
const faultHeader = "X-Storm"

// cosmosFaults are the ways in which one request can fail.
var cosmosFaults = map[string]cosmostest.Fault{
	"resets":          {Answer: cosmostest.Answer{Reset: true}},
	"closes":          {Answer: cosmostest.Answer{Refuse: true}},
	"hangs":           {Answer: cosmostest.Answer{Hang: true}},
	"slow answers":    {Answer: cosmostest.Answer{Delay: 400 * time.Millisecond}},
	"late answers":    {Answer: cosmostest.Answer{Delay: 4 * time.Second}},
	"cut answers":     {Answer: cosmostest.Answer{CutAfter: 7}},
	"reset answers":   {Answer: cosmostest.Answer{CutAfter: 7, Reset: true}},
	"stalled answers": {Answer: cosmostest.Answer{CutAfter: 7, Hang: true}},
	"half headers":    {Answer: cosmostest.Answer{CutHeader: true}},

	"429 for 20ms": {Answer: cosmostest.Throttled(20 * time.Millisecond)},
	"429 for 1s":   {Answer: cosmostest.Throttled(time.Second)},
	"429 for 9s":   {Answer: cosmostest.Throttled(9 * time.Second)},

	"lost acknowledgements (reset)": {AfterApply: true, Answer: cosmostest.Answer{Reset: true}},
	"lost acknowledgements (close)": {AfterApply: true, Answer: cosmostest.Answer{Refuse: true}},
	"lost acknowledgements (hang)":  {AfterApply: true, Answer: cosmostest.Answer{Hang: true}},
	"lost acknowledgements (503)":   {AfterApply: true, Answer: cosmostest.Error(503, 0)},
	"lost acknowledgements (408)":   {AfterApply: true, Answer: cosmostest.Error(408, 0)},
	"lost acknowledgements (500)":   {AfterApply: true, Answer: cosmostest.Error(500, 0)},
}

// codes are the answers of the service's own that say what is wrong.
var codes = []string{
	"403/3", "403/1008", "404/1002", "408/0", "410/0", "410/1000", "410/1002", "410/1007", "410/1008",
	"429/3200", "429/3092", "449/0", "500/0", "502/0", "503/0", "504/0",
}

var (
	dataFaults     []string
	metadataFaults = []string{
		"resets", "closes", "hangs", "slow answers", "late answers", "cut answers", "stalled answers", "half headers",
		"429 for 20ms", "429 for 1s", "404/1002", "500/0", "503/0", "408/0", "410/0",
	}
)

func init() {
	for _, c := range codes {
		status, _ := strconv.Atoi(c[:3])
		substatus, _ := strconv.Atoi(c[4:])
		cosmosFaults[c] = cosmostest.Fault{Answer: cosmostest.Error(status, substatus)}
	}
	for name := range cosmosFaults {
		dataFaults = append(dataFaults, name)
	}
	slices.Sort(dataFaults)
}

// addFaults has the account do what a struck request says.
func (w *cosmosWorld) addFaults() {
	for name, fault := range cosmosFaults {
		fault.Match.Header = map[string]string{faultHeader: name}
		w.AddFault(fault)
	}
	w.weather(6*time.Second, func(r *rand.Rand, f *front) {
		f.fault = pick(r, dataFaults...)
		if r.IntN(3) > 0 {
			f.place = pick(r, w.regions...)
		}
		if r.IntN(3) > 0 {
			f.part = strconv.Itoa(r.IntN(6))
		}
	})
	w.weather(20*time.Second, func(r *rand.Rand, f *front) {
		f.fault, f.place, f.writes = pick(r, metadataFaults...), "metadata", 0
		f.part = pick(r, "", "/", "/dbs/d/colls/c", "/dbs/d/colls/c/pkranges", "/dbs/d/colls/c/pkranges")
	})
}

// inflict sends a request that is struck by a fault, "" for none.
func inflict(next http.RoundTripper, req *http.Request, fault string) (*http.Response, error) {
	if fault == "" {
		return next.RoundTrip(req)
	}
	struck := *req
	struck.Header = req.Header.Clone()
	struck.Header.Set(faultHeader, fault)
	return next.RoundTrip(&struck)
}
