package middleware_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware"
)

func unmendable() []error {
	authority := x509.UnknownAuthorityError{}
	errs := []error{
		authority, // B35: bare
		&tls.CertificateVerificationError{Err: authority},
		fmt.Errorf("wrapped: %w", &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}}),
		&url.Error{Op: "Get", URL: "https://h", Err: authority},
		&url.Error{Op: "Get", URL: "https://h", Err: errors.New("stopped after 10 redirects")},
	}
	for _, bad := range []*http.Request{
		{Method: "GET", URL: &url.URL{Scheme: "gopher", Host: "h"}, Header: http.Header{}},
		{Method: "GET", URL: &url.URL{Scheme: "http", Host: "h"}, Header: http.Header{"Bad": {"a\nb"}}},
	} {
		_, err := (&http.Transport{}).RoundTrip(bad)
		errs = append(errs, err)
	}
	return errs
}

func TestErrorsAreJudgedByTheirKind(t *testing.T) { // DESIGN rule 5
	dial := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err       error
		cause     middleware.Cause
		unapplied bool
	}{
		{nil, middleware.Unjudged, false},
		{dial, middleware.Unreachable, true},
		{fmt.Errorf("wrapped: %w", dial), middleware.Unreachable, true},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, middleware.Unreachable, true},
		{&net.OpError{Op: "proxyconnect", Err: dial}, middleware.Unreachable, true},
		{&net.DNSError{Name: "h", IsNotFound: true}, middleware.Unreachable, true},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, middleware.Unreachable, true},
		{errors.New("net/http: TLS handshake timeout"), middleware.Unreachable, true},
		{os.ErrDeadlineExceeded, middleware.Timeout, false},
		{io.EOF, middleware.Broken, false},
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, middleware.Broken, false},
		{errBoom, middleware.Broken, false},
		// R41: refused before anything was done with it; the others may have been carried out.
		{errors.New("stream error: stream ID 3; REFUSED_STREAM; received from peer"), middleware.Broken, true},
		{errors.New("http2: Transport: cannot retry err [stream error: stream ID 3; REFUSED_STREAM] after Request.Body was written; define Request.GetBody to avoid this error"), middleware.Broken, true},
		{errors.New("stream error: stream ID 3; INTERNAL_ERROR; received from peer"), middleware.Broken, false},
		{errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug="; REFUSED_STREAM"`), middleware.Broken, false},
		{errors.New("http: ContentLength=8 with Body length 3"), middleware.Unmendable, false}, // R32
	} {
		out := middleware.JudgeError(c.err)
		require.Equal(t, c.cause, out.Cause, "%v", c.err)
		require.Equal(t, c.unapplied, out.Unapplied, "%v", c.err)
	}
	for _, err := range unmendable() {
		require.Equal(t, middleware.Unmendable, middleware.JudgeError(err).Cause, "%v", err)
	}
}

func TestCausesKindsAndStopsHaveNames(t *testing.T) {
	for c := middleware.Unjudged; c <= middleware.DeadlineExceeded; c++ {
		require.NotContains(t, c.String(), "unknown")
	}
	for k := middleware.AttemptStarted; k <= middleware.PoolReplaced; k++ {
		require.NotContains(t, k.String(), "unknown")
	}
	for s := middleware.NotStopped; s <= middleware.NotPrepared; s++ {
		require.NotContains(t, s.String(), "unknown")
	}
	require.Equal(t, "unknown cause", middleware.Cause(200).String())
	require.Equal(t, "unknown event", middleware.EventKind(200).String())
	require.Equal(t, "unknown stop", middleware.Stop(200).String())
}
