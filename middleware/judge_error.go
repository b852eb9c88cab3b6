package middleware

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/hashicorp/go-retryablehttp"
)

// JudgeError judges a base transport's error by its kind (DESIGN rule 5): a
// failed dial, a failed name lookup and a failed TLS handshake were not sent, a
// refused HTTP/2 stream was not carried out; anything else may have been. What no repeat can mend is left to the
// judgement of go-retryablehttp's default policy. Dialects call it for the
// errors they have no better words for.
func JudgeError(err error) Outcome {
	switch {
	case err == nil:
		return Outcome{Cause: Unjudged}
	case unmendable(err):
		return Outcome{Cause: Unmendable, Unapplied: true, Code: "unmendable"}
	case wrongLength(err):
		return Outcome{Cause: Unmendable, Code: "request body"} // the caller's, each time (R32)
	case notSent(err):
		return Outcome{Cause: Unreachable, Unapplied: true, Code: "unreachable"}
	case unprocessed(err):
		return Outcome{Cause: Broken, Unapplied: true, Code: "refused stream"}
	case timedOut(err):
		return Outcome{Cause: Timeout, Code: "timeout"}
	default:
		return Outcome{Cause: Broken, Code: "broken"}
	}
}

// Untrusted reports whether err says that the certificate of the service, or of
// who poses as it, is not trusted. Of the errors that no repeat can mend it is the
// one that is not the request's fault.
func Untrusted(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		host         x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

func unmendable(err error) bool {
	if Untrusted(err) {
		return true
	}
	// The policy recognises its cases by the text inside a *url.Error, which is
	// how http.Client hands errors over; a RoundTripper sees them bare.
	var u *url.Error
	if !errors.As(err, &u) {
		u = &url.Error{Op: http.MethodGet, Err: err}
	}
	retry, _ := retryablehttp.DefaultRetryPolicy(context.Background(), nil, u)
	return !retry
}

func notSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") {
		return true
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return true
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return true
	}
	// net/http keeps the type of this one to itself.
	return strings.Contains(err.Error(), "TLS handshake timeout")
}

// unprocessed recognises, by the texts that net/http gives them, the HTTP/2 streams
// that the server promises not to have begun with (RFC 9113, 6.8 and 8.7; R41).
func unprocessed(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "http2: Transport: cannot retry err [") ||
		strings.HasPrefix(text, "stream error: ") && strings.Contains(text, "; REFUSED_STREAM")
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// wrongLength recognises, by the text that net/http gives it, a request body that
// has not the length that was announced.
func wrongLength(err error) bool {
	return strings.Contains(err.Error(), "http: ContentLength=") && strings.Contains(err.Error(), " with Body length ")
}
