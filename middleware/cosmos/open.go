package cosmos

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/reroute-go/reroute/internal/check"
	"github.com/reroute-go/reroute/partitions"
	"github.com/reroute-go/reroute/regions"
	"github.com/reroute-go/reroute/regions/snapshot"
)

// Open reads the topology of the account at endpoint ("https://acct.documents.azure.com:443/") and returns the Account.
//
// An endpoint that cannot be reached is tried twice more, 100 and 200 ms apart; a 429 is waited out, up to 9 times
// and 30 s in all; then each of Options.BackupEndpoints is asked. A refused credential (401, 403) fails at once. Open
// itself has no limit but ctx and the three minutes that asking all endpoints may take.
//
// Errors are configuration errors that name the field; ErrBadKey; ctx's error; or one *FetchError for each endpoint
// asked, joined, in which errors.As also finds the *DocumentError of a document that was refused. No error holds a
// credential.
func Open(ctx context.Context, endpoint string, auth Authorizer, opts Options) (*Account, error) {
	var errs []error
	u, err := parseEndpoint(endpoint)
	if err != nil {
		errs = append(errs, fmt.Errorf("cosmos: endpoint %q %w", check.Shown(endpoint), err))
	}
	errs = append(errs, checkAuthorizer(auth))
	backups, err := opts.validate()
	errs = append(errs, err)
	source, config := &partitionSource{}, opts.Partitions
	config.Source = source
	config.RefreshWait = cmp.Or(config.RefreshWait, defaultResolveWait)
	known, err := partitions.New(config) // asks the source for nothing yet
	if err != nil {
		errs = append(errs, fmt.Errorf("cosmos: Options.Partitions: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	base, release := opts.Transport, func() {}
	if base == nil {
		own := NewTransport()
		base, release = own, own.CloseIdleConnections
	}
	fetcher, err := newFetcher(base, auth, cmp.Or(opts.RequestTimeout, defaultRequestTimeout), throttle{
		retries: cmp.Or(opts.ThrottleRetries, defaultThrottles), maxWait: cmp.Or(opts.ThrottleMaxWait, defaultThrottleWait),
	})
	if err != nil {
		return nil, err
	}
	domain := domainOf(u, backups)
	a := &Account{dialect: dialect{strictPatch: opts.StrictPatch}, domain: domain, name: u.Host, release: release}
	a.Regions, err = regions.New(regions.Config{
		Source:             &topologySource{fetcher: fetcher, domain: domain, endpoint: u, backups: backups},
		Preferred:          opts.PreferredRegions,
		RefreshInterval:    opts.RefreshInterval,
		BackgroundInterval: opts.BackgroundInterval,
		FetchTimeout:       walkTimeout,
		RefreshWait:        opts.RefreshWait,
		MarkFor:            opts.MarkFor,
		OnChange:           a.changed(opts.OnChange),
	})
	if err != nil {
		return nil, err
	}
	source.fetcher, source.regions = fetcher, a.Regions
	a.Partitions = known
	if err := a.discover(ctx); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

func checkAuthorizer(auth Authorizer) error {
	switch a := auth.(type) {
	case nil:
		return errors.New("cosmos: Authorizer is nil: how are the account's own requests signed?")
	case interface{ validate() error }:
		return a.validate()
	}
	if check.IsNil(auth) {
		return fmt.Errorf("cosmos: Authorizer is a nil %T: how are the account's own requests signed?", auth)
	}
	return nil
}

// changed passes the account's flag on to the partitions.
func (a *Account) changed(then func(old, new *regions.Topology)) func(old, new *regions.Topology) {
	return func(old, new *regions.Topology) {
		a.Partitions.SetPartitionFailover(&new.PartitionFailover)
		if then != nil {
			then(old, new)
		}
	}
}

// discover waits for the first topology: longer than RefreshWait, which is what an operation would wait.
func (a *Account) discover(ctx context.Context) error {
	for {
		_, err := a.Regions.Refresh(ctx, nil)
		if !errors.Is(err, snapshot.ErrMaxWait) {
			return err
		}
	}
}
