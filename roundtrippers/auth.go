package roundtrippers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/middleware"
)

// Auth puts a token on requests and, when the service answers that it is not
// authorized, sends the operation once more with a fresh one. The first token is
// fetched with the first request and kept. However many operations meet the end
// of a token together, the next one is fetched once; nobody's cancellation ends
// the fetch for the others (seed api-requests: "replayed once with a fresh
// token").
//
// A request that carries the header already keeps it, and is not replayed. A
// token is only ever put on for one of the Origins, so that no redirect carries it
// elsewhere. A layer below that changes the address takes it along: stack those
// outside, and what is rerouted is checked too. If the source fails nothing is
// sent: see AuthError.
//
// Stacked as it is, it has the token before the layers below it wait. Where it is
// to fetch it only after a breaker has let the attempt through, stack the two
// parts of Split. Share the pointer to share the token; do not copy it.
type Auth struct {
	Dialect middleware.Dialect // required
	// Source fetches a token. It is called by one goroutine at a time, with a
	// context that is detached from the operation. It should send through a client
	// of its own: what it sends through this one carries no token, waits for permits
	// that Concurrency.HoldUntilBodyClose may keep meanwhile, and is refused by a
	// Circuit that is open or probed, by an operation that waits for this very token
	// for instance: that breaker then never closes. Required.
	Source func(ctx context.Context) (Token, error)
	// Origins may see the token, each by its full name: "https://api.example.com".
	// Required.
	Origins []string
	// Header that carries it; "" = Authorization.
	Header string
	// RefreshTimeout limits one fetch; 0 = 30 s.
	RefreshTimeout time.Duration
	// RefreshAhead of its expiry a token is replaced while still in use, but not
	// before half of its life is over; 0 = 30 s.
	RefreshAhead time.Duration

	once    sync.Once
	tokens  tokens
	origins map[string]bool
	budget  middleware.Budget
}

// Wrap reports missing and negative fields, an origin that is none and a Header that
// is the name of none.
func (l *Auth) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	replay, attach := l.Split()
	attached, err := attach.Wrap(next)
	if err != nil {
		return nil, err
	}
	return replay.Wrap(attached)
}

// Split returns the layer in two: replay, the outer part, sends again with a
// fresh token; attach, the inner one, puts the token on. A Circuit may be stacked
// between, so that replays pass it too and no token is fetched while it is open.
// Both go above RateLimit and Concurrency, as neither should be spent on a wait
// for a token.
func (l *Auth) Split() (replay, attach middleware.Layer) { return (*authReplay)(l), (*authAttach)(l) }

// Both parts are the layer itself, so that Stack tells its mistakes once.
type (
	authReplay Auth
	authAttach Auth
)

// Format prints the layer without its token, whatever the verb.
func (part *authReplay) Format(f fmt.State, verb rune) { (*Auth)(part).Format(f, verb) }

// Format prints the layer without its token, whatever the verb.
func (part *authAttach) Format(f fmt.State, verb rune) { (*Auth)(part).Format(f, verb) }

func (l *Auth) start() error {
	var m mistakes
	m.dialect(l.Dialect)
	if l.Source == nil {
		m.add(errors.New("Source is nil: where do tokens come from?"))
	}
	if len(l.Origins) == 0 {
		m.add(errors.New("Origins is empty: who may see the token?"))
	}
	negative(&m, "RefreshTimeout", l.RefreshTimeout)
	negative(&m, "RefreshAhead", l.RefreshAhead)
	origins := map[string]bool{}
	for i, text := range l.Origins {
		u, err := url.Parse(text)
		if err != nil || !isOrigin(u) {
			m.add(fmt.Errorf("Origins[%d] is %q, want http or https://host[:port]", i, check.Shown(text)))
			continue
		}
		origins[originOf(u)] = true
	}
	if !check.HeaderName(l.header()) {
		m.add(fmt.Errorf("Header is %q, want the name of a header", check.Shown(l.Header)))
	}
	if len(m) > 0 {
		return m.join()
	}
	l.once.Do(func() {
		l.origins = origins
		l.budget = middleware.Budget{Name: "auth", Retries: 1}
		l.tokens.source = l.Source
		l.tokens.limit = orDefault(l.RefreshTimeout, 30*time.Second)
		l.tokens.ahead = orDefault(l.RefreshAhead, 30*time.Second)
	})
	return nil
}

// isOrigin reports whether requests can have u's origin, and u has nothing else.
func isOrigin(u *url.URL) bool {
	scheme := strings.ToLower(u.Scheme)
	bare := u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == ""
	// No host has these, though url.Parse lets them pass: "https://*.example.com".
	return bare && (scheme == "https" || scheme == "http") && u.Hostname() != "" && !strings.ContainsAny(u.Hostname(), "*!$&'()+,;=")
}

func originOf(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

func (l *Auth) header() string { return http.CanonicalHeaderKey(orDefault(l.Header, "Authorization")) }

// Format prints the layer without its token, whatever the verb.
func (l *Auth) Format(f fmt.State, _ rune) {
	l.tokens.mu.Lock()
	token := Token{}
	if l.tokens.current != nil {
		token = l.tokens.current.Token
	}
	l.tokens.mu.Unlock()
	_, _ = fmt.Fprintf(f, "Auth{%s: %v}", l.header(), token)
}

// Wrap returns the loop that replays.
func (part *authReplay) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	l := (*Auth)(part)
	if err := l.start(); err != nil {
		return nil, err
	}
	return middleware.Retry(next, l.Dialect, func(ctx context.Context, op *middleware.Operation, out middleware.Outcome) middleware.Verdict {
		used, ours := op.Value(l).(*heldToken)
		if out.Cause != middleware.Unauthorized || !ours {
			return middleware.Verdict{}
		}
		return middleware.Verdict{
			Budget: &l.budget, Replay: true,
			Prepare: func(ctx context.Context) error { return l.tokens.renew(ctx, used) },
			Stopped: func() {
				if op.Spent(&l.budget).Retries == 0 {
					l.tokens.replace(ctx, used) // for the next operation: this one's body may not be replayable
				}
			},
		}
	}, &l.budget)
}

// Wrap returns the RoundTripper that puts the token on.
func (part *authAttach) Wrap(next http.RoundTripper) (http.RoundTripper, error) {
	l := (*Auth)(part)
	if err := l.start(); err != nil {
		return nil, err
	}
	return middleware.Operate(next, l.Dialect, l.roundTrip), nil
}

func (l *Auth) roundTrip(op *middleware.Operation, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	ctx := req.Context()
	switch {
	case req.URL == nil:
		return middleware.Refuse(req, errNoURL)
	case l.attached(op, req):
		return next.RoundTrip(req) // a stack within a stack
	}
	if len(req.Header.Values(l.header())) > 0 || !l.origins[originOf(req.URL)] || ctx.Value(insideSource{&l.tokens}) != nil {
		op.SetValue(l, nil)
		return next.RoundTrip(req)
	}
	token, waited, err := l.tokens.get(ctx)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			op.EmitRefused(ctx, op.Judge(l.Dialect, nil, err), err)
		}
		return middleware.Refuse(req, err)
	case waited:
		if err := op.Recheck(); err != nil {
			return middleware.Refuse(req, err)
		}
	}
	op.SetValue(l, token)
	if token.Value != "" {
		req = withHeader(req, l.header(), token.Value)
	}
	return next.RoundTrip(req)
}

// attached reports whether req carries the token that this layer has put on.
func (l *Auth) attached(op *middleware.Operation, req *http.Request) bool {
	token, ok := op.Value(l).(*heldToken)
	return ok && token.Value != "" && req.Header.Get(l.header()) == token.Value
}
