package workload

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Kind is what a Caller asks for.
type Kind int

const (
	Get  Kind = iota // reads an item, with the 8 headers that the Cosmos DB SDK sends
	Post             // writes one of 1 KiB
)

// String names the kind as the tables do.
func (k Kind) String() string { return [...]string{"GET", "POST 1 KiB"}[k] }

// Address of the item that is read.
const Address = "https://account.documents.example/dbs/db/colls/c/docs/a"

// Body is what is written.
var Body = bytes.Repeat([]byte("0123456789abcdef"), 64)

// Header returns the request's headers. stamped includes the one that the Cosmos
// DB dialect adds where it is missing.
func Header(stamped bool) http.Header {
	h := http.Header{
		"Authorization":                         {"type%3Dmaster%26ver%3D1.0%26sig%3Dredacted"},
		"User-Agent":                            {"azsdk-go-azcosmos/v1.5.0"},
		"X-Ms-Activity-Id":                      {"e9d47935-8ba7-4035-7064-4b5c4c69c26a"},
		"X-Ms-Cosmos-Sdk-Supportedcapabilities": {"1"},
		"X-Ms-Date":                             {"Sun, 29 Nov 2026 18:26:49 GMT"},
		"X-Ms-Documentdb-Partitionkey":          {`["p1"]`},
		"X-Ms-Version":                          {"2020-11-05"},
		"Accept":                                {"application/json"},
	}
	if stamped {
		h["X-Ms-Noretry-449"] = []string{"true"}
	}
	return h
}

// Request returns the request of kind, without its body: see Caller.
func Request(kind Kind) *http.Request {
	u, err := url.Parse(Address)
	if err != nil {
		panic(err) // Address is a constant
	}
	req := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: Header(false)}
	if kind == Post {
		u.Path = "/dbs/db/colls/c/docs"
		req.Method = http.MethodPost
		req.ContentLength = int64(len(Body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(Body)), nil }
	}
	return req
}

// Caller sends the same request again and again, as a client without a client
// would: closing each answer, with a new body for each write. It is for one
// goroutine.
type Caller struct {
	Transport http.RoundTripper
	Request   *http.Request
}

// NewCaller returns a Caller of requests of kind through rt.
func NewCaller(rt http.RoundTripper, kind Kind) *Caller {
	return &Caller{Transport: rt, Request: Request(kind)}
}

// Call makes one operation. Any answer but 200 is an error.
func (c *Caller) Call() error {
	if c.Request.GetBody != nil {
		c.Request.Body = io.NopCloser(bytes.NewReader(Body))
	}
	resp, err := c.Transport.RoundTrip(c.Request)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %d", c.Request.Method, c.Request.URL.Path, resp.StatusCode)
	}
	return nil
}
