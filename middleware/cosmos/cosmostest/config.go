package cosmostest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Global is the name of the account's global endpoint wherever a region is named. The write region
// serves it, but it is up or down by itself: SetOffline of a region leaves it alone.
const Global = "global"

// Defaults of Config.
const (
	// DefaultKey is the master key, in base64. It opens nothing but simulated accounts.
	DefaultKey = "Y29zbW9zdGVzdCBtYXN0ZXIga2V5LCBub3QgYSBzZWNyZXQgYXQgYWxsIQ=="
	// DefaultToken is the access token.
	DefaultToken = "cosmostest-access-token"
)

// Config describes an account. The zero Config is three regions, single-write, Session consistency, on loopback sockets.
type Config struct {
	// ID is the account name. Default "acct".
	ID string
	// Regions in the order of the account document; the first is the write region (hub). Default West US, East US, North Europe.
	Regions []string
	// MultiWrite lets every region take item writes that carry x-ms-cosmos-allow-tentative-writes: true.
	MultiWrite bool
	// PartitionFailover is the account flag enablePerPartitionFailoverBehavior. Default nil: absent from the document.
	PartitionFailover *bool
	// Consistency is the account's default level. Default "Session"; with "Strong" replication has no lag.
	Consistency string
	// Key is the base64 master key. Default DefaultKey.
	Key string
	// Token is the access token that Authorization "type=aad&ver=1.0&sig=<token>" must carry. Default DefaultToken.
	Token string
	// IgnoreSignatures accepts any Authorization, or none. Default: every request is verified, a wrong one is answered 401 and counted.
	IgnoreSignatures bool
	// Ranges is how many partition key ranges a new container has. Default 1.
	Ranges int
	// ReplicationLag is the lag of every region at the start; see SetReplicationLag. Default 0.
	ReplicationLag time.Duration
	// LogSize is how many requests the log keeps. Default 16384.
	LogSize int
	// TLS serves https with a certificate of its own, which Transport trusts; see TLSClientConfig. Default plain http.
	TLS bool
	// HTTP2 lets Transport speak HTTP/2 (without TLS: with prior knowledge). The server always understands both. There a connection cannot
	// be reset or cut in the middle of a header, so those faults abort the stream. Default HTTP/1.1.
	HTTP2 bool
	// InMemory serves over net.Pipe instead of loopback sockets, as a synctest bubble needs. Reach it through Transport or DialContext.
	InMemory bool
}

// complete fills in the defaults, refuses what cannot be, and returns the decoded key.
func (c *Config) complete() ([]byte, error) {
	c.Regions = slices.Clone(c.Regions)
	if len(c.Regions) == 0 {
		c.Regions = []string{"West US", "East US", "North Europe"}
	}
	defaults := []struct {
		field *string
		value string
	}{{&c.ID, "acct"}, {&c.Consistency, "Session"}, {&c.Key, DefaultKey}, {&c.Token, DefaultToken}}
	for _, d := range defaults {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	if c.Ranges == 0 {
		c.Ranges = 1
	}
	if c.LogSize == 0 {
		c.LogSize = 16384
	}
	key, err := base64.StdEncoding.DecodeString(c.Key)
	switch {
	case err != nil || len(key) == 0:
		return nil, errors.New("Config.Key is no base64")
	case c.Ranges < 0 || c.Ranges > 1<<16:
		return nil, fmt.Errorf("Config.Ranges is %d, want 1 to 65536", c.Ranges)
	case c.ReplicationLag < 0:
		return nil, fmt.Errorf("Config.ReplicationLag is %v, want 0 or more", c.ReplicationLag)
	case c.LogSize < 0:
		return nil, fmt.Errorf("Config.LogSize is %d, want 1 or more", c.LogSize)
	}
	return key, nil
}
