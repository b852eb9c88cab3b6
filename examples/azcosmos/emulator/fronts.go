package emulator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
)

// Account is one data set behind several fronts. Close it. All methods are safe for concurrent use.
type Account struct {
	Fronts []*Front

	mu         sync.Mutex
	hub        *Front
	multiWrite bool
}

// Front is one region's address.
type Front struct {
	Region string
	URL    string // "http://127.0.0.1:port"

	account *Account
	proxy   http.Handler
	address string

	mu                sync.Mutex
	server            *http.Server // nil while shut
	status, substatus int          // what is answered instead of serving; 0 = serve
	requests          int
}

// NewAccount puts a front for each region before the server at to. The first region is the write region; with multiWrite all are.
func NewAccount(to *url.URL, multiWrite bool, regions ...string) (*Account, error) {
	a := &Account{multiWrite: multiWrite}
	for _, region := range regions {
		f := &Front{Region: region, account: a, address: "127.0.0.1:0"}
		f.proxy = &httputil.ReverseProxy{
			Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(to) },
			ErrorLog: log.New(io.Discard, "", 0), // clients that leave
		}
		if err := f.Open(); err != nil {
			a.Close()
			return nil, err
		}
		f.URL = "http://" + f.address
		a.Fronts = append(a.Fronts, f)
	}
	a.hub = a.Fronts[0]
	return a, nil
}

// Close shuts all fronts.
func (a *Account) Close() {
	for _, f := range a.Fronts {
		f.Shut()
	}
}

// SetHub makes another front the write region.
func (a *Account) SetHub(f *Front) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hub = f
}

// document is the account document: the server's own always names one region, over https.
func (a *Account) document() []byte {
	type location struct {
		Name     string `json:"name"`
		Endpoint string `json:"databaseAccountEndpoint"`
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var readable, writable []location
	for _, f := range a.Fronts {
		l := location{f.Region, f.URL + "/"}
		readable = append(readable, l)
		if f == a.hub || a.multiWrite {
			writable = append(writable, l)
		}
	}
	b, err := json.Marshal(map[string]any{
		"id": "emulator", "_rid": "emulator", "_self": "", "readableLocations": readable, "writableLocations": writable,
		"enableMultipleWriteLocations": a.multiWrite, "userConsistencyPolicy": map[string]any{"defaultConsistencyLevel": "Session"},
	})
	if err != nil {
		panic(err) // strings and booleans
	}
	return b
}

// Fail has the front answer everything, the account document too, with a status and substatus; 0 has it serve again.
func (f *Front) Fail(status, substatus int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status, f.substatus = status, substatus
}

// Shut has connections refused, and cuts those that are open.
func (f *Front) Shut() {
	f.mu.Lock()
	server := f.server
	f.server = nil
	f.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
}

// Open takes connections again, at the address that the front had before.
func (f *Front) Open() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server != nil {
		return nil
	}
	socket, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", f.address)
	if err != nil {
		return fmt.Errorf("front of %s: %w", f.Region, err)
	}
	f.address = socket.Addr().String()
	f.server = &http.Server{Handler: f}
	go func(s *http.Server) { _ = s.Serve(socket) }(f.server)
	return nil
}

// Requests counts what has reached the front.
func (f *Front) Requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests++
	status, substatus := f.status, f.substatus
	f.mu.Unlock()
	switch {
	case status != 0:
		if substatus != 0 {
			w.Header().Set("x-ms-substatus", strconv.Itoa(substatus))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"code":%q,"message":"The front of %s fails."}`, http.StatusText(status), f.Region)
	case r.Method == http.MethodGet && r.URL.Path == "/":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(f.account.document())
	default:
		f.proxy.ServeHTTP(w, r)
	}
}
