package roundtrippers_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/roundtrippers"
)

// wrapping is a layer that is a function.
type wrapping func(http.RoundTripper) (http.RoundTripper, error)

func (f wrapping) Wrap(next http.RoundTripper) (http.RoundTripper, error) { return f(next) }

// asLayer makes a whole stack a layer.
func asLayer(layers ...middleware.Layer) middleware.Layer {
	return wrapping(func(next http.RoundTripper) (http.RoundTripper, error) { return middleware.Stack(next, layers...) })
}

// one is a kit of a layer that every scenario makes anew.
func one(made func() middleware.Layer, request func(context.Context) *http.Request, again ...layertest.Step) layertest.Kit {
	return layertest.Kit{New: made, Request: request, Again: again}
}

func refuses(made func() middleware.Layer, request func(context.Context) *http.Request) layertest.Kit {
	return layertest.Kit{New: made, Request: request, Refuses: true}
}

// code is an answer of Cosmos DB.
func code(status int, substatus string) layertest.Step {
	step := layertest.Step{Status: status}
	if substatus != "" {
		step.Header = map[string]string{"X-Ms-Substatus": substatus}
	}
	return step
}

func theOperation(name string) func(context.Context) *http.Request {
	return func(ctx context.Context) *http.Request { return operation(name).to(ctx) }
}

// anAccount is one that reads its own documents past the layer under test.
func anAccount(multiWrite bool) *cosmos.Account { return slowAccount(multiWrite, 0) }

// slowAccount is one whose documents take their time.
func slowAccount(multiWrite bool, takes time.Duration) *cosmos.Account {
	reads := middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		if err := inTime(req.Context(), takes); err != nil {
			return nil, err
		}
		return playStep(req, accountsReads(req, multiWrite)), nil
	})
	account, err := cosmos.Open(context.Background(), "https://"+accountHost, cosmos.SharedKey(accountKey), cosmos.Options{Transport: reads})
	if err != nil {
		panic(err)
	}
	return account
}

// inTime waits, unless the context ends first.
func inTime(ctx context.Context, wait time.Duration) error {
	if wait <= 0 { // a timer of 0 in a bubble brings the race detector's runtime down (go1.26)
		return ctx.Err()
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func playStep(req *http.Request, step layertest.Step) *http.Response {
	header := http.Header{}
	for name, value := range step.Header {
		header.Set(name, value)
	}
	if step.Status == 0 {
		step.Status = 200
	}
	return &http.Response{StatusCode: step.Status, Header: header, Request: req, ContentLength: int64(len(step.Body)), Body: io.NopCloser(strings.NewReader(step.Body))}
}

// cosmosLayer makes one layer of the Cosmos DB stack.
func cosmosLayer(of func(a *cosmos.Account) middleware.Layer) func() middleware.Layer {
	return func() middleware.Layer { return of(anAccount(false)) }
}

func cosmosStack(multiWrite bool, change func(*roundtrippers.Builder)) func() middleware.Layer {
	return accountStack(func() *cosmos.Account { return anAccount(multiWrite) }, change)
}

func accountStack(open func() *cosmos.Account, change func(*roundtrippers.Builder)) func() middleware.Layer {
	return func() middleware.Layer {
		a := open()
		b := roundtrippers.Builder{Dialect: a, Regions: a.Regions, Partitions: a.Partitions}
		if change != nil {
			change(&b)
		}
		return wrapping(func(base http.RoundTripper) (http.RoundTripper, error) {
			b.Base = base
			return b.Build()
		})
	}
}

// patient requests are those of an API whose operations are sent three times.
func patientRequest(method string) func(context.Context) *http.Request {
	return func(ctx context.Context) *http.Request {
		ctx = patiently(ctx, middleware.Patience{Retries: 2, Base: time.Second})
		req, err := http.NewRequestWithContext(ctx, method, "https://api.test/rows", nil)
		if err != nil {
			panic(err)
		}
		return req
	}
}

func essentialRequest(ctx context.Context) *http.Request {
	req := patientRequest(http.MethodGet)(ctx)
	return req.WithContext(essentially(ctx))
}

func apiStack(change func(*roundtrippers.APIBuilder)) func() middleware.Layer {
	return func() middleware.Layer {
		b := roundtrippers.APIBuilder{Dialect: rest.Dialect{}, Circuit: &roundtrippers.Circuit{Threshold: 1000}}
		if change != nil {
			change(&b)
		}
		return wrapping(func(base http.RoundTripper) (http.RoundTripper, error) {
			b.Base = base
			return b.Build()
		})
	}
}

func tokenAuth() *roundtrippers.Auth {
	return &roundtrippers.Auth{Dialect: rest.Dialect{}, Origins: []string{"https://api.test"},
		Source: func(context.Context) (roundtrippers.Token, error) { return roundtrippers.Token{Value: "t"}, nil }}
}

func someOwners(nodes ...string) *ownership.Registry { return slowOwners(0, nodes...) }

// slowOwners is a registry whose map takes its time.
func slowOwners(takes time.Duration, nodes ...string) *ownership.Registry {
	owners, err := ownership.New(ownership.Config{Source: ownership.MapSourceFunc(func(ctx context.Context, _ *ownership.Map) (*ownership.Map, error) {
		if err := inTime(ctx, takes); err != nil {
			return nil, err
		}
		if len(nodes) == 0 {
			return nil, errBoom
		}
		return &ownership.Map{Epoch: 1, Segments: []ownership.Segment{{Owner: nodes[0]}}}, nil
	})})
	if err != nil {
		panic(err)
	}
	return owners
}

func keyRequest(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://a.test/kv/k", nil)
	if err != nil {
		panic(err)
	}
	return req
}

func ownershipStack(change func(*roundtrippers.OwnershipBuilder)) func() middleware.Layer {
	return func() middleware.Layer {
		b := roundtrippers.OwnershipBuilder{Dialect: kvDialect, Owners: someOwners("a.test")}
		if change != nil {
			change(&b)
		}
		return wrapping(func(base http.RoundTripper) (http.RoundTripper, error) {
			b.Base = base
			return b.Build()
		})
	}
}

func always(l middleware.Layer) func() middleware.Layer { return func() middleware.Layer { return l } }

// foreignLayer knows nothing of operations, and copies requests.
type foreignLayer struct{}

func (foreignLayer) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	return foreign{next}, nil
}

type foreign struct{ next http.RoundTripper }

func (f foreign) RoundTrip(req *http.Request) (*http.Response, error) {
	copied := *req
	copied.Header = req.Header.Clone()
	copied.Header.Set("X-Foreign", "yes")
	return f.next.RoundTrip(&copied)
}

// spend sends one request through a layer that remembers.
func spend(l middleware.Layer, request func(context.Context) *http.Request, step layertest.Step) {
	rt, err := l.Wrap(middleware.RoundTripperFunc(func(req *http.Request) (*http.Response, error) { return playStep(req, step), nil }))
	if err != nil {
		panic(err)
	}
	if resp, err := rt.RoundTrip(request(context.Background())); err == nil {
		resp.Body.Close()
	}
}
