package emulator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/examples/azcosmos/azadapter"
	"github.com/reroute-go/reroute/middleware/cosmos"
	"github.com/reroute-go/reroute/middleware/cosmos/cosmostest"
	"github.com/reroute-go/reroute/roundtrippers"
)

var (
	server  *Server
	missing error
)

func TestMain(m *testing.M) {
	var err error
	server, err = Start(context.Background(), "..")
	switch {
	case errors.Is(err, ErrMissing):
		missing = err
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if server != nil {
		server.Close()
	}
	os.Exit(code)
}

// start gives a test fronts and a container of its own, through the SDK over reroute.
func start(t *testing.T, multiWrite bool) (*Account, *azcosmos.ContainerClient) {
	t.Helper()
	if missing != nil {
		t.Skip(missing)
	}
	fronts, err := NewAccount(server.URL, multiWrite, "West US", "East US")
	require.NoError(t, err)
	t.Cleanup(fronts.Close)

	ctx := context.Background()
	account, err := cosmos.Open(ctx, fronts.Fronts[0].URL, cosmos.SharedKey(cosmostest.DefaultKey), cosmos.Options{RefreshInterval: time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(account.Close)
	transport, err := azadapter.New(roundtrippers.Builder{Dialect: account, Regions: account.Regions, Partitions: account.Partitions})
	require.NoError(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	return fronts, container(t, fronts.Fronts[0].URL, databaseOf(fronts), azadapter.ClientOptions(transport), true)
}

// container gives a client's view of db, which ends with the server.
func container(t *testing.T, endpoint, db string, options *azcosmos.ClientOptions, create bool) *azcosmos.ContainerClient {
	t.Helper()
	key, err := azcosmos.NewKeyCredential(cosmostest.DefaultKey) // the emulator verifies none
	require.NoError(t, err)
	client, err := azcosmos.NewClientWithKey(endpoint, key, options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	if create {
		ctx := context.Background()
		_, err = client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: db}, nil)
		require.NoError(t, err)
		database, err := client.NewDatabase(db)
		require.NoError(t, err)
		_, err = database.CreateContainer(ctx, azcosmos.ContainerProperties{ID: "items",
			PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}, Kind: azcosmos.PartitionKeyKindHash}}, nil)
		require.NoError(t, err)
	}
	items, err := client.NewContainer(db, "items")
	require.NoError(t, err)
	return items
}

// databaseOf is a name that no other test has: fronts have ports of their own, and the server forgets nothing.
func databaseOf(a *Account) string { return "db-" + a.Fronts[0].address + "-" + a.Fronts[1].address }

// works does everything once, and finds what it wrote.
func works(t *testing.T, items *azcosmos.ContainerClient, id string) {
	t.Helper()
	ctx, pk := context.Background(), azcosmos.NewPartitionKeyString("p")
	_, err := items.CreateItem(ctx, pk, fmt.Appendf(nil, `{"id":%q,"pk":"p","v":1}`, id), nil)
	require.NoError(t, err)
	_, err = items.CreateItem(ctx, pk, fmt.Appendf(nil, `{"id":%q,"pk":"p","v":1}`, id), nil)
	requireStatus(t, http.StatusConflict, err)
	_, err = items.UpsertItem(ctx, pk, fmt.Appendf(nil, `{"id":%q,"pk":"p","v":2}`, id), nil)
	require.NoError(t, err)
	read, err := items.ReadItem(ctx, pk, id, nil)
	require.NoError(t, err)
	require.Contains(t, string(read.Value), `"v":2`)
	pager := items.NewQueryItemsPager("SELECT * FROM c WHERE c.id = @id", pk, &azcosmos.QueryOptions{
		QueryParameters: []azcosmos.QueryParameter{{Name: "@id", Value: id}}})
	page, err := pager.NextPage(ctx)
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	_, err = items.DeleteItem(ctx, pk, id, nil)
	require.NoError(t, err)
	_, err = items.DeleteItem(ctx, pk, id, nil)
	requireStatus(t, http.StatusNotFound, err)
}

func requireStatus(t *testing.T, status int, err error) {
	t.Helper()
	var answered *azcore.ResponseError
	require.ErrorAs(t, err, &answered)
	require.Equal(t, status, answered.StatusCode)
}

func TestRealServerTheSDKWorksOverRerouteWhileTheFirstFrontFails(t *testing.T) {
	fronts, items := start(t, true)
	first, second := fronts.Fronts[0], fronts.Fronts[1]
	works(t, items, "healthy")
	require.Zero(t, second.Requests(), "nothing leaves the first region while it serves")

	first.Fail(http.StatusServiceUnavailable, 0)
	before := first.Requests()
	works(t, items, "503")
	require.Positive(t, second.Requests())
	require.LessOrEqual(t, first.Requests(), before+7, "each asks the first once, until the fifth failed write opens the partition's breaker of writes")
	before = first.Requests()
	works(t, items, "503 still")
	require.Less(t, first.Requests(), before+7, "the writes stay away; two failed reads are no reason yet")

	first.Shut()
	served := second.Requests()
	works(t, items, "refused")
	require.Equal(t, served+7, second.Requests(), "the seven requests of works, once each")

	// Both down: the caller learns it, without two minutes of the SDK's, and all is well again as soon as one is back.
	second.Fail(http.StatusServiceUnavailable, 0)
	failed := second.Requests()
	_, err := items.ReadItem(context.Background(), azcosmos.NewPartitionKeyString("p"), "x", nil)
	require.Error(t, err)
	var ours *azadapter.Error
	require.ErrorAs(t, err, &ours)
	require.LessOrEqual(t, second.Requests()-failed, 4)
	second.Fail(0, 0)
	works(t, items, "back")
}

func TestRealServerAWriteFollowsTheHub(t *testing.T) {
	fronts, items := start(t, false)
	first, second := fronts.Fronts[0], fronts.Fronts[1]
	works(t, items, "before")
	require.Zero(t, second.Requests())

	fronts.SetHub(second)
	first.Fail(http.StatusForbidden, 3) // as a region does that was the hub
	pk := azcosmos.NewPartitionKeyString("p")
	_, err := items.UpsertItem(context.Background(), pk, []byte(`{"id":"moved","pk":"p"}`), nil)
	// The first front refuses the account document as well, so it is the second that names the new hub.
	require.NoError(t, err)
	require.Positive(t, second.Requests())
	first.Fail(0, 0)
	read, err := items.ReadItem(context.Background(), pk, "moved", nil)
	require.NoError(t, err)
	require.Contains(t, string(read.Value), `"moved"`)
}

func TestRealServerTheSDKAloneFailsWhereRerouteWorks(t *testing.T) {
	fronts, items := start(t, true)
	alone := container(t, fronts.Fronts[0].URL, databaseOf(fronts), &azcosmos.ClientOptions{
		ClientOptions:    azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}, // fast; its own policy stays on
		PreferredRegions: []string{"West US", "East US"},
	}, false)
	ctx, pk := context.Background(), azcosmos.NewPartitionKeyString("p")
	item := []byte(`{"id":"1","pk":"p"}`)
	_, err := alone.UpsertItem(ctx, pk, item, nil)
	require.NoError(t, err)

	fronts.Fronts[0].Fail(http.StatusInternalServerError, 0)
	_, err = alone.UpsertItem(ctx, pk, item, nil)
	requireStatus(t, http.StatusInternalServerError, err)
	_, err = items.UpsertItem(ctx, pk, item, nil)
	require.NoError(t, err)
}

func TestAMissingInstallationSaysWhatToDo(t *testing.T) {
	_, err := Start(context.Background(), t.TempDir())
	require.ErrorIs(t, err, ErrMissing)
	t.Setenv("PATH", t.TempDir())
	_, err = Start(context.Background(), "..")
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(t, err, "Node.js")
}
