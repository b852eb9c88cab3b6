package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/middleware/ownership/ownershiptest"
)

func TestALostUpdateIsNoticed(t *testing.T) {
	cluster, err := ownershiptest.New(ownershiptest.Config{InMemory: true})
	require.NoError(t, err)
	defer cluster.Close()
	client, registry, err := connect(cluster)
	require.NoError(t, err)
	defer registry.Close()
	l := &load{cluster: cluster, client: client}
	cluster.LoseAnswers("counter-1", 1)
	require.True(t, l.increment("counter-1", "me"), "its answer was lost, the value tells")
	require.True(t, l.increment("counter-1", "you"))
	require.NoError(t, l.verdict())
	l.done.Add(1)
	require.ErrorContains(t, l.verdict(), "3 increments acknowledged, 2 stored")
}
