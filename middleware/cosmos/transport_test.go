package cosmos

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheTransportHasTheLimitsThatACustomOneLoses(t *testing.T) {
	tr := NewTransport()
	require.Equal(t, 65*time.Second, tr.ResponseHeaderTimeout)
	require.Equal(t, 5*time.Second, tr.TLSHandshakeTimeout)
	require.Equal(t, 1000, tr.MaxIdleConns)
	require.Equal(t, 100, tr.MaxIdleConnsPerHost)
	require.Equal(t, 2*time.Second, tr.HTTP2.SendPingTimeout)
	require.Equal(t, time.Second, tr.HTTP2.PingTimeout)
	require.NotNil(t, tr.Proxy)
	require.NotSame(t, tr, NewTransport())
}

func TestRealSocketsSpeakHTTP2WhereTheServerDoes(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Proto))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	tr := NewTransport()
	tr.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	tr.TLSClientConfig.NextProtos = nil
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), "GET", server.URL, nil)
	require.NoError(t, err)
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 2, resp.ProtoMajor)
}

// The whole way over sockets: a plain http simulator whose document names its regions by port.
func TestRealSocketsOpenASimulatedAccount(t *testing.T) {
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	body = document([]string{"East " + server.URL}, []string{"East " + server.URL, "West http://127.0.0.1:1"}, "")
	a, err := Open(t.Context(), server.URL, SharedKey(testKey), Options{})
	require.NoError(t, err)
	defer a.Close()
	require.True(t, a.Regions.Knows("127.0.0.1:1"))

	_, err = Open(t.Context(), server.URL, AuthorizerFunc(func(context.Context, *http.Request) error { return nil }), Options{})
	var e *FetchError
	require.ErrorAs(t, err, &e)
	require.Equal(t, 401, e.Status)
}
