package cosmos

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
)

// Options configures an Account. Zero values are the defaults named at each field; Open refuses bad ones by name.
type Options struct {
	// PreferredRegions is the order in which regions serve. Regions it does not name follow in account order, unknown
	// names are skipped. None: account order.
	PreferredRegions []regions.Name
	// BackupEndpoints are asked for the account document when the account's endpoint, and every region known, did not
	// give it. Credentials go to them as they are, and the document may name their hosts.
	BackupEndpoints []string
	// Transport carries the Account's own requests. Nil: a NewTransport, which Close then closes. The body of each
	// answer must end when the request's context does, as it does in net/http.
	Transport http.RoundTripper

	// StrictPatch takes a PATCH without an If-Match tag for one that must not be repeated: an "incr" that was
	// applied, though its answer was lost, would be applied twice. False: patches may be repeated, as in the driver.
	// Either way it binds only under a Guard layer.
	StrictPatch bool

	// Partitions tunes the cache of ranges and, in its Failover, the breakers of partitions, where the environment
	// variables AZURE_COSMOS_PPCB_* decide what is left open. Its Source is the Account's own and must be nil; its
	// RefreshWait, how long an operation waits for ranges before it goes on without its partition, is 2 s here.
	Partitions partitions.Config
	// ThrottleRetries and ThrottleMaxWait limit how often, and how long in sum, one of the Account's own reads waits
	// out a 429 at the same endpoint: 9, 30 s.
	ThrottleRetries int
	// ThrottleMaxWait is their sum: see ThrottleRetries.
	ThrottleMaxWait time.Duration

	RequestTimeout     time.Duration // one attempt to read the account document, body included: 10 s; 5 s to 65 s
	RefreshInterval    time.Duration // from a successful refresh of the topology to the next one: 5 s
	BackgroundInterval time.Duration // between the refreshes of Run: 5 min
	RefreshWait        time.Duration // how long one operation waits for a refresh before it goes on without: 15 s
	MarkFor            time.Duration // from an endpoint's mark to its probe: 60 s

	// OnChange is told of each new topology: see regions.Config.OnChange.
	OnChange func(old, new *regions.Topology)
}

const (
	defaultRequestTimeout = 10 * time.Second
	defaultResolveWait    = 2 * time.Second
	defaultThrottles      = 9
	defaultThrottleWait   = 30 * time.Second
	minRequestTimeout     = 5 * time.Second
	maxRequestTimeout     = 65 * time.Second
	// walkTimeout bounds one refresh, however many endpoints it has to ask.
	walkTimeout = 3 * time.Minute
)

// validate checks what regions.New does not, and returns the parsed backups.
func (o *Options) validate() (backups []*url.URL, err error) {
	var errs []error
	for i, n := range o.PreferredRegions {
		if n.Key() == "" {
			errs = append(errs, fmt.Errorf("cosmos: Options.PreferredRegions[%d] is %q: a region needs a name", i, string(n)))
		}
	}
	for i, s := range o.BackupEndpoints {
		u, err := parseEndpoint(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("cosmos: Options.BackupEndpoints[%d] %q %w", i, check.Shown(s), err))
			continue
		}
		backups = append(backups, u)
	}
	if t := o.RequestTimeout; t != 0 && (t < minRequestTimeout || t > maxRequestTimeout) {
		errs = append(errs, fmt.Errorf("cosmos: Options.RequestTimeout is %v, want %v to %v", t, minRequestTimeout, maxRequestTimeout))
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"RefreshInterval", o.RefreshInterval}, {"BackgroundInterval", o.BackgroundInterval},
		{"RefreshWait", o.RefreshWait}, {"MarkFor", o.MarkFor}, {"ThrottleMaxWait", o.ThrottleMaxWait},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("cosmos: Options.%s is %v: must not be negative", f.name, f.value))
		}
	}
	if o.ThrottleRetries < 0 {
		errs = append(errs, fmt.Errorf("cosmos: Options.ThrottleRetries is %d: must not be negative", o.ThrottleRetries))
	}
	if o.Partitions.Source != nil {
		errs = append(errs, errors.New("cosmos: Options.Partitions.Source is set: the account is the source"))
	}
	if o.Transport != nil {
		if err := check.Part("cosmos: Options.Transport", o.Transport); err != nil {
			errs = append(errs, err)
		}
	}
	return backups, errors.Join(errs...)
}
