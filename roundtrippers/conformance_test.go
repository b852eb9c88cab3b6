package roundtrippers_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/layertest"
	"github.com/reroute-go/reroute/middleware/ownership"
	"github.com/reroute-go/reroute/middleware/rest"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/roundtrippers"
)

// Every layer and every ready-made stack is held against the contract of
// http.RoundTripper and the promises of layertest.

// moved are answers of the owner that is none.
var moved = []layertest.Step{
	{Status: 421, Header: map[string]string{"X-Route-Status": "NOT_OWNER"}},
	{Status: 503, Header: map[string]string{"X-Route-Status": "MIGRATING"}},
}

// ofService are the answers of Cosmos DB after which a stack sends again.
var ofService = []layertest.Step{
	code(403, "3"), code(403, "1008"), code(404, "1002"), code(410, "1002"), code(429, "3092"),
}

// ownLayers are all layers by their types: TestNoLayerIsForgotten compares them
// with the source.
func ownLayers() map[string]layertest.Kit {
	d := rest.Dialect{}
	rows := patientRequest(http.MethodPut)
	return map[string]layertest.Kit{
		"middleware.LayerFunc":  one(always(middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper { return next })), nil),
		"middleware.Observer":   one(always(middleware.Observer(func(context.Context, middleware.Event) {})), nil),
		"middleware.ReplayBody": one(always(middleware.ReplayBody{MaxBytes: 10}), nil),
		"ownership.Stamp":       one(always(ownership.Stamp{}), nil),

		"roundtrippers.Guard": one(cosmosLayer(func(a *cosmos.Account) middleware.Layer { return roundtrippers.Guard{Dialect: a} }), theOperation("sproc execute")),
		"roundtrippers.Failover": one(cosmosLayer(func(a *cosmos.Account) middleware.Layer {
			return roundtrippers.Failover{Dialect: a, Regions: a.Regions}
		}), theOperation("replace"), code(503, "")),
		"roundtrippers.Session": one(cosmosLayer(func(a *cosmos.Account) middleware.Layer { return roundtrippers.Session{Dialect: a, Regions: a.Regions} }), theOperation("read"), code(404, "1002")),
		"roundtrippers.Partition": one(cosmosLayer(func(a *cosmos.Account) middleware.Layer {
			return roundtrippers.Partition{Dialect: a, Partitions: a.Partitions}
		}), theOperation("replace"), code(410, "1002")),
		"roundtrippers.Breaker": one(cosmosLayer(func(a *cosmos.Account) middleware.Layer {
			return roundtrippers.Breaker{Dialect: a, Regions: a.Regions, Partitions: a.Partitions}
		}), theOperation("replace")),
		"roundtrippers.Route": one(cosmosLayer(func(a *cosmos.Account) middleware.Layer {
			return roundtrippers.Route{Dialect: a, Regions: a.Regions, Partitions: a.Partitions}
		}), theOperation("replace")),
		"roundtrippers.Throttle":  one(cosmosLayer(func(a *cosmos.Account) middleware.Layer { return roundtrippers.Throttle{Dialect: a} }), theOperation("replace"), code(429, "")),
		"roundtrippers.RetryWith": one(cosmosLayer(func(a *cosmos.Account) middleware.Layer { return roundtrippers.RetryWith{Dialect: a} }), theOperation("replace"), code(449, "")),
		"roundtrippers.Shard":     one(cosmosLayer(func(a *cosmos.Account) middleware.Layer { return roundtrippers.Shard{Dialect: a} }), theOperation("read")),

		"roundtrippers.Reroute": one(func() middleware.Layer {
			return roundtrippers.Reroute{Dialect: kvDialect, Owners: someOwners("a.test")}
		}, keyRequest, moved...),
		"roundtrippers.Retry":          one(always(roundtrippers.Retry{Dialect: d}), rows, layertest.Step{Status: 503}),
		"roundtrippers.Deadline":       one(always(roundtrippers.Deadline{After: time.Minute}), nil),
		"roundtrippers.AttemptTimeout": one(always(roundtrippers.AttemptTimeout{After: time.Minute}), nil),
		"roundtrippers.Circuit":        one(func() middleware.Layer { return &roundtrippers.Circuit{Dialect: d} }, rows),
		"roundtrippers.Pause":          one(func() middleware.Layer { return &roundtrippers.Pause{Dialect: d} }, rows),
		"roundtrippers.PriorityHeader": one(always(roundtrippers.PriorityHeader{}), rows),
		"roundtrippers.Concurrency":    one(func() middleware.Layer { return &roundtrippers.Concurrency{} }, rows),
		"roundtrippers.RateLimit":      one(func() middleware.Layer { return &roundtrippers.RateLimit{PerSecond: 10} }, rows),
		"roundtrippers.RetryBudget":    one(func() middleware.Layer { return &roundtrippers.RetryBudget{} }, rows),
		"roundtrippers.IdempotencyKey": one(always(roundtrippers.IdempotencyKey{}), patientRequest(http.MethodPost)),
		"roundtrippers.Auth":           one(func() middleware.Layer { return tokenAuth() }, rows, layertest.Step{Status: 401}),
		"roundtrippers.authReplay":     one(func() middleware.Layer { replay, _ := tokenAuth().Split(); return replay }, rows),
		"roundtrippers.authAttach":     one(func() middleware.Layer { _, attach := tokenAuth().Split(); return attach }, rows),
	}
}

func TestEveryLayerKeepsEveryPromise(t *testing.T) {
	for name, kit := range ownLayers() {
		t.Run(name, func(t *testing.T) {
			t.Run("alone", kit.Run)
			stacked := kit
			stacked.New = func() middleware.Layer { return asLayer(kit.New()) }
			t.Run("in a stack", stacked.Run)
			twice := kit
			twice.New = func() middleware.Layer { return asLayer(kit.New(), kit.New()) }
			t.Run("twice", twice.Run)
		})
	}
}

// layerTypes reads which types of the module have a method Wrap. A package is
// known by its last name.
func layerTypes(t *testing.T, roots ...string) (names []string) {
	t.Helper()
	for _, root := range roots {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || f.Name.Name != "Wrap" || f.Recv == nil {
					continue
				}
				of := f.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				names = append(names, file.Name.Name+"."+of.(*ast.Ident).Name)
			}
			return nil
		}))
	}
	return names
}

// inside are layers that no user can stack: they belong to the client that an
// account reads its own documents with.
var inside = map[string]bool{"cosmos.throttle": true, "cosmos.reconnect": true}

func TestNoLayerIsForgotten(t *testing.T) {
	kits := ownLayers()
	found := 0
	for _, name := range layerTypes(t, ".", "../middleware") {
		if inside[name] {
			continue
		}
		found++
		kit, ok := kits[name]
		require.True(t, ok, "%s has a Wrap and is not in ownLayers", name)
		of := reflect.TypeOf(kit.New())
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		require.Equal(t, name, of.String())
	}
	require.Len(t, kits, found)
}

// stacks are the ready-made ones, and what layers are made of.
func stacks() map[string]layertest.Kit {
	rows := patientRequest(http.MethodPut)
	retry := wrapping(func(next http.RoundTripper) (http.RoundTripper, error) {
		return middleware.Retry(next, rest.Dialect{}, func(context.Context, *middleware.Operation, middleware.Outcome) middleware.Verdict {
			return middleware.Verdict{Budget: threeTimes, Wait: time.Second}
		}, threeTimes)
	})
	withAll := func(b *roundtrippers.APIBuilder) {
		b.OperationTimeout, b.AttemptTimeout = time.Minute, 10*time.Second
		b.Pause, b.PerOperation = &roundtrippers.Pause{}, []middleware.Layer{roundtrippers.PriorityHeader{}}
		b.RetryBudget, b.IdempotencyKey, b.Auth, b.RateLimit = &roundtrippers.RetryBudget{}, &roundtrippers.IdempotencyKey{}, tokenAuth(), &roundtrippers.RateLimit{PerSecond: 1000}
	}
	return map[string]layertest.Kit{
		"middleware.Stack, empty": one(always(asLayer()), nil),
		"middleware.Operate": one(always(middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
			return middleware.Operate(next, nil, func(_ *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
				return next.RoundTrip(req)
			})
		})), nil),
		"middleware.Retry": one(always(retry), nil, layertest.Step{Status: 503}),
		"roundtrippers.Pools": one(func() middleware.Layer {
			return middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
				return &roundtrippers.Pools{New: func() http.RoundTripper { return next }}
			})
		}, nil),

		"Builder, single-write, a write":              one(cosmosStack(false, nil), theOperation("replace"), ofService...),
		"Builder, single-write, a read":               one(cosmosStack(false, nil), theOperation("read"), ofService...),
		"Builder, multi-write, a write":               one(cosmosStack(true, nil), theOperation("replace"), ofService...),
		"Builder, a stored procedure":                 one(cosmosStack(false, nil), theOperation("sproc execute"), code(429, "")),
		"Builder, with limits":                        one(cosmosStack(false, func(b *roundtrippers.Builder) { b.OperationTimeout, b.AttemptTimeout = 200*time.Second, time.Second }), theOperation("replace"), ofService...),
		"Builder, without regions":                    one(func() middleware.Layer { return asLayer(roundtrippers.Builder{Dialect: rest.Dialect{}}.Layers()...) }, rows, layertest.Step{Status: 503}),
		"Builder, documents that take their time":     one(accountStack(func() *cosmos.Account { return slowAccount(false, 3*time.Second) }, nil), theOperation("replace"), ofService...),
		"OwnershipBuilder, a map that takes its time": one(ownershipStack(func(b *roundtrippers.OwnershipBuilder) { b.Owners = slowOwners(3*time.Second, "a.test") }), keyRequest, moved...),
		"APIBuilder, a token that takes its time": one(apiStack(func(b *roundtrippers.APIBuilder) {
			b.Auth = tokenAuth()
			b.Auth.Source = func(ctx context.Context) (roundtrippers.Token, error) {
				return roundtrippers.Token{Value: "t"}, inTime(ctx, 3*time.Second)
			}
		}), rows, layertest.Step{Status: 401}),
		"OwnershipBuilder": one(ownershipStack(nil), keyRequest, moved...),
		"OwnershipBuilder, with limits, an observer": one(ownershipStack(func(b *roundtrippers.OwnershipBuilder) {
			b.AttemptTimeout, b.Observe = time.Second, func(context.Context, middleware.Event) {}
		}), keyRequest, moved...),
		"APIBuilder":                  one(apiStack(nil), rows, layertest.Step{Status: 503}),
		"APIBuilder, with everything": one(apiStack(withAll), rows, layertest.Step{Status: 401}, layertest.Step{Status: 503}, throttled("1")),
		"APIBuilder, an essential write that is throttled": one(apiStack(withAll), func(ctx context.Context) *http.Request {
			return rows(ctx).WithContext(essentially(ctx))
		}, throttled("1")),
		"APIBuilder, a POST with a key": one(apiStack(withAll), patientRequest(http.MethodPost), layertest.Step{Status: 503}),
		"APIBuilder, an essential read": one(apiStack(func(b *roundtrippers.APIBuilder) { b.OperationTimeout = 20 * time.Second }), essentialRequest, layertest.Step{Status: 503}),
		"APIBuilder, one send at a time": one(apiStack(func(b *roundtrippers.APIBuilder) {
			b.Concurrency = &roundtrippers.Concurrency{Limit: 1, HoldUntilBodyClose: true}
		}), rows, layertest.Step{Status: 503}),
	}
}

var threeTimes = &middleware.Budget{Name: "conformance", Retries: 3}

func TestEveryReadyMadeStackKeepsEveryPromise(t *testing.T) {
	for name, kit := range stacks() {
		t.Run(name, func(t *testing.T) {
			t.Run("alone", kit.Run)
			nested := kit
			nested.New = func() middleware.Layer { return asLayer(foreignLayer{}, kit.New(), foreignLayer{}) }
			t.Run("in a stack, between layers of others", nested.Run)
		})
	}
}

func TestEveryRefusalKeepsItsPromises(t *testing.T) { // B09
	rows := patientRequest(http.MethodPut)
	soon := func(ctx context.Context) *http.Request {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		context.AfterFunc(ctx, cancel)
		return rows(ctx)
	}
	openCircuit := func() middleware.Layer {
		l := &roundtrippers.Circuit{Dialect: rest.Dialect{}, Threshold: 1, Cooldown: time.Hour, MaxCooldown: time.Hour}
		spend(l, rows, layertest.Step{Status: 500})
		return l
	}
	paused := func() *roundtrippers.Pause {
		l := &roundtrippers.Pause{Dialect: rest.Dialect{}, Max: time.Hour}
		spend(l, rows, throttled("3600"))
		return l
	}
	for name, kit := range map[string]layertest.Kit{
		"Pause":                 refuses(func() middleware.Layer { return paused() }, rows),
		"Pause in an API stack": refuses(func() middleware.Layer { return apiStack(func(b *roundtrippers.APIBuilder) { b.Pause = paused() })() }, rows),
		"Pause, beyond the deadline": refuses(func() middleware.Layer { return paused() }, func(ctx context.Context) *http.Request {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			context.AfterFunc(ctx, cancel)
			return essentialRequest(ctx)
		}),
		"Circuit, open": refuses(openCircuit, rows),
		"Circuit in an API stack, open": refuses(func() middleware.Layer {
			return apiStack(func(b *roundtrippers.APIBuilder) { b.Circuit = openCircuit().(*roundtrippers.Circuit) })()
		}, rows),
		"RateLimit, beyond the deadline": refuses(func() middleware.Layer {
			l := &roundtrippers.RateLimit{PerSecond: 0.001}
			spend(l, rows, layertest.Step{})
			return l
		}, soon),
		"Auth, without a token": refuses(func() middleware.Layer {
			l := tokenAuth()
			l.Source = func(context.Context) (roundtrippers.Token, error) { return roundtrippers.Token{}, errBoom }
			return l
		}, rows),
		"Auth in an API stack, without a token": refuses(apiStack(func(b *roundtrippers.APIBuilder) {
			b.Auth = tokenAuth()
			b.Auth.Source = func(context.Context) (roundtrippers.Token, error) { return roundtrippers.Token{}, errBoom }
		}), rows),
		"IdempotencyKey, a key that is none": refuses(always(roundtrippers.IdempotencyKey{New: func() string { return "" }}), patientRequest(http.MethodPost)),
		"Route, no region left": refuses(cosmosLayer(func(a *cosmos.Account) middleware.Layer {
			return roundtrippers.Route{Dialect: a, Regions: a.Regions, StrictExclusion: true}
		}), func(ctx context.Context) *http.Request {
			return operation("replace").to(middleware.WithExcludedRegions(ctx, "a", "b", "c"))
		}),
		"Route, no topology": refuses(func() middleware.Layer {
			r, err := regions.New(regions.Config{Source: regions.SourceFunc(func(context.Context, *regions.Topology) (*regions.Topology, error) { return nil, errBoom })})
			if err != nil {
				panic(err)
			}
			return roundtrippers.Route{Dialect: words{}, Regions: r}
		}, nil),
		"OwnershipBuilder, no map": refuses(ownershipStack(func(b *roundtrippers.OwnershipBuilder) { b.Owners = someOwners() }), keyRequest),
		"Stack, a request without a URL": refuses(cosmosStack(false, nil), func(ctx context.Context) *http.Request {
			req := operation("replace").to(ctx)
			req.URL = nil
			return req
		}),
		"middleware.Refuse": refuses(always(middleware.LayerFunc(func(next http.RoundTripper) http.RoundTripper {
			return middleware.Operate(next, nil, func(_ *middleware.Operation, req *http.Request, _ http.RoundTripper) (*http.Response, error) {
				return middleware.Refuse(req, errors.New("no"))
			})
		})), nil),
	} {
		t.Run(name, kit.Run)
	}
}
