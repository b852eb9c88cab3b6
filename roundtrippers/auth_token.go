package roundtrippers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/middleware"
)

// Token is a credential. Printed or logged, it hides its value.
type Token struct {
	// Value is the header's value, whole: "Bearer abc". "" sends no header.
	Value string
	// Expires is when the service will no longer take it; zero = unknown.
	Expires time.Time
}

// Format prints a token without its value, whatever the verb.
func (t Token) Format(f fmt.State, _ rune) {
	set := "<empty>"
	if t.Value != "" {
		set = "<set>"
	}
	if !t.Expires.IsZero() {
		set += " until " + t.Expires.Format(time.RFC3339)
	}
	_, _ = fmt.Fprintf(f, "Token{%s}", set)
}

// LogValue logs a token without its value.
func (t Token) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(t)) }

// MarshalText writes a token without its value, for loggers that marshal.
func (t Token) MarshalText() ([]byte, error) { return []byte(fmt.Sprint(t)), nil }

// AuthError says that nothing was sent because the token could not be had. It
// matches middleware.ErrNoCredential.
type AuthError struct {
	Err error // of the token's source
}

// Error shows the cause without what could be a credential.
func (e *AuthError) Error() string { return "no token: " + middleware.Redact(e.Err).Error() }

// MarshalText gives loggers that marshal what Error shows, and no more.
func (e *AuthError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// Is matches middleware.ErrNoCredential.
func (e *AuthError) Is(target error) bool { return target == middleware.ErrNoCredential }

// Unwrap returns the error of the token's source.
func (e *AuthError) Unwrap() error { return e.Err }

// tokens keeps the current token and fetches the next, once for all who need it.
type tokens struct {
	source func(context.Context) (Token, error)
	limit  time.Duration // of one fetch
	ahead  time.Duration // before the expiry

	mu         sync.Mutex
	current    *heldToken // nil = none that is good
	generation uint64
	flight     *tokenFlight
	refused    time.Time // when the last fetch failed
}

type heldToken struct {
	Token
	generation uint64
	received   time.Time
	life       time.Duration // from received on; 0 = unknown
	ahead      time.Duration // of its end it is due to be replaced
}

// left is how long the token is good for. It is counted from its arrival, so that
// a wall clock that jumps changes nothing (X11).
func (h *heldToken) left() time.Duration { return h.life - time.Since(h.received) }

type tokenFlight struct {
	done  chan struct{}
	token *heldToken
	err   error
}

// insideSource marks the context of a fetch, by whose it is.
type insideSource struct{ of *tokens }

// aheadPause follows a fetch that failed before the next one that nobody waits for:
// the source would otherwise be asked by every request.
const aheadPause = time.Second

// get returns a good token, and whether that took a wait.
func (t *tokens) get(ctx context.Context) (token *heldToken, waited bool, err error) {
	t.mu.Lock()
	if current := t.current; current != nil {
		if current.life == 0 || current.left() > 0 {
			if current.life != 0 && current.left() <= current.ahead && time.Since(t.refused) >= aheadPause {
				t.fly(ctx) // in good time: nobody waits
			}
			t.mu.Unlock()
			return current, false, nil
		}
	}
	flight := t.fly(ctx)
	t.mu.Unlock()
	token, err = flight.wait(ctx)
	return token, true, err
}

// renew sees to it that there is a token newer than the one that was not
// accepted. Whoever comes with an older one than the current has nothing to do.
func (t *tokens) renew(ctx context.Context, rejected *heldToken) error {
	t.mu.Lock()
	if t.current != nil && t.current.generation > rejected.generation {
		t.mu.Unlock()
		return nil
	}
	t.current = nil
	flight := t.fly(ctx)
	t.mu.Unlock()
	_, err := flight.wait(ctx)
	return err
}

// replace is renew for those who need no token themselves: it does not wait, and
// leaves it at one fetch that has failed.
func (t *tokens) replace(ctx context.Context, rejected *heldToken) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == rejected {
		t.current = nil
		t.fly(ctx)
	}
}

// fly joins the fetch under way or starts one. It is detached from the caller,
// whose end is not the others', and has its own time limit, which also ends the
// wait for a source that heeds no context. Called with mu held.
func (t *tokens) fly(ctx context.Context) *tokenFlight {
	if t.flight != nil {
		return t.flight
	}
	f := &tokenFlight{done: make(chan struct{})}
	t.flight = f
	ctx = context.WithValue(context.WithoutCancel(middleware.Detach(ctx)), insideSource{t}, true)
	ctx, cancel := context.WithTimeoutCause(ctx, t.limit, errSourceSlow)
	abandon := context.AfterFunc(ctx, func() { t.land(f, Token{}, context.Cause(ctx)) })
	go func() {
		defer cancel()
		defer abandon()
		defer t.land(f, Token{}, errSourceEnded) // counts only where it ends this goroutine
		token, err := t.fetch(ctx)
		if err != nil && ctx.Err() != nil { // callers must not take it for their own context's end
			err = fmt.Errorf("%w: %s", errSourceSlow, middleware.Redact(err).Error())
		}
		t.land(f, token, err)
	}()
	return f
}

var (
	errSourceEnded = errors.New("the token source ended its goroutine")
	errSourceSlow  = errors.New("the token source took longer than RefreshTimeout")
)

func (t *tokens) fetch(ctx context.Context) (token Token, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the token source panicked: %v", p)
		}
	}()
	token, err = t.source(ctx)
	if err == nil && !check.HeaderValue(token.Value) {
		return Token{}, errBadToken // a base that is not net/http might write it as it is
	}
	return token, err
}

var errBadToken = errors.New("the token holds a control character")

// land ends f, unless it has been ended.
func (t *tokens) land(f *tokenFlight, token Token, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flight != f {
		return
	}
	t.flight = nil
	defer close(f.done)
	if err != nil {
		f.err, t.refused = &AuthError{Err: err}, time.Now()
		return
	}
	t.generation++
	f.token = &heldToken{Token: token, generation: t.generation, received: time.Now()}
	if !token.Expires.IsZero() {
		f.token.life = max(time.Until(token.Expires), 1)
		f.token.ahead = min(t.ahead, f.token.life/2)
	}
	t.current = f.token
}

func (f *tokenFlight) wait(ctx context.Context) (*heldToken, error) {
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
