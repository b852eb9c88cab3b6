package cosmos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"unicode"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/regions"
)

// maxName is far above the name of any region.
const maxName = 128

// maxDocument is far above any account document, which takes a few KiB.
const maxDocument = 1 << 20

// DocumentError refuses an account document. The topology known before stays in force.
type DocumentError struct {
	// Problem says what is wrong, and with which field.
	Problem string
	// Value is the offending value, shortened; "" if there is none to show.
	Value string
}

// Error names the problem and the value.
func (e *DocumentError) Error() string {
	if e.Value == "" {
		return "cosmos: account document refused: " + e.Problem
	}
	return fmt.Sprintf("cosmos: account document refused: %s: %q", e.Problem, e.Value)
}

func refuse(value, format string, args ...any) *DocumentError {
	return &DocumentError{Problem: fold(fmt.Sprintf(format, args...), 200), Value: fold(value, 200)} // JSON's errors repeat numbers whole
}

// accountDocument is the part of the account's document that routing needs.
type accountDocument struct {
	Writable          []location `json:"writableLocations"`
	Readable          []location `json:"readableLocations"`
	MultiWrite        bool       `json:"enableMultipleWriteLocations"`
	PartitionFailover *bool      `json:"enablePerPartitionFailoverBehavior"`

	// Code is set in the service's error envelope, which must never pass for a document.
	Code *string `json:"code"`
}

type location struct {
	Name     string `json:"name"`
	Endpoint string `json:"databaseAccountEndpoint"`
}

// topologyOf reads an account document, which may only name hosts of d. A document without the flag of partition
// failover says nothing about it: then old's value stays (DESIGN rule 10). Every error is a *DocumentError.
func topologyOf(body []byte, d *domain, old *regions.Topology) (*regions.Topology, error) {
	if len(body) > maxDocument {
		return nil, refuse("", "longer than %d bytes", maxDocument)
	}
	var doc accountDocument
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(&doc); err != nil {
		return nil, refuse(string(body[:min(len(body), 200)]), "not JSON of the right shape (%v)", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, refuse("", "something follows the JSON")
	}
	if len(doc.Writable) == 0 {
		if doc.Code != nil {
			return nil, refuse(*doc.Code, "it is an error's")
		}
		return nil, refuse("", "writableLocations is missing or empty")
	}
	t := &regions.Topology{MultiWrite: doc.MultiWrite}
	switch {
	case doc.PartitionFailover != nil:
		t.PartitionFailover = *doc.PartitionFailover
	case old != nil:
		t.PartitionFailover = old.PartitionFailover
	}
	var err error
	if t.Writes, err = endpointsOf("writableLocations", doc.Writable, d); err != nil {
		return nil, err
	}
	if t.Reads, err = endpointsOf("readableLocations", doc.Readable, d); err != nil {
		return nil, err
	}
	return t, nil
}

func endpointsOf(field string, locations []location, d *domain) ([]regions.Endpoint, error) {
	out := make([]regions.Endpoint, 0, len(locations))
	for i, l := range locations {
		at := fmt.Sprintf("%s[%d]", field, i)
		if strings.TrimSpace(l.Name) == "" {
			return nil, refuse(l.Name, "%s.name is empty", at)
		}
		if len(l.Name) > maxName || strings.ContainsFunc(l.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return nil, refuse(l.Name, "%s.name is longer than %d bytes or does not print", at, maxName) // it goes into logs
		}
		u, err := parseEndpoint(l.Endpoint)
		if err != nil {
			return nil, refuse(check.Shown(l.Endpoint), "%s.databaseAccountEndpoint %v", at, err)
		}
		if u.Scheme != d.scheme {
			return nil, refuse(u.String(), "%s.databaseAccountEndpoint is not %s like the account's", at, d.scheme)
		}
		if !d.owns(u) {
			return nil, refuse(u.String(), "%s.databaseAccountEndpoint is not a host of this account", at)
		}
		out = append(out, regions.Endpoint{Region: regions.Name(l.Name), URL: u})
	}
	return out, nil
}

// parseEndpoint reads an address of nothing but scheme, host and port. Its errors do not repeat the text, which may
// hold a password.
func parseEndpoint(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case strings.Contains(s, "AccountKey="):
		return nil, errors.New("is a connection string: pass its AccountEndpoint, and its AccountKey to SharedKey")
	case err != nil:
		return nil, errors.New("is not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("is neither https nor http")
	case u.User != nil:
		return nil, errors.New("holds a user name or password")
	case u.Hostname() == "":
		return nil, errors.New("has no host")
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
		return nil, errors.New("is more than scheme, host and port")
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
}
