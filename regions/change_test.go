package regions_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/reroute-go/reroute/regions"
)

func TestReportSaysWhatChanged(t *testing.T) {
	r, _ := open(t, singleWrite(east, west))
	defer r.Close()
	report := func(v regions.Verdict) regions.Change {
		return r.Report(at(t, r, east, false), v, regions.Unreachable)
	}
	require.Equal(t, regions.Unchanged, report(regions.Healthy))
	require.Equal(t, regions.Unchanged, report(regions.Neutral))
	require.Equal(t, regions.Marked, report(regions.Failed))
	require.Equal(t, regions.Unchanged, report(regions.Failed), "marked already")
	require.Equal(t, regions.Restored, report(regions.Healthy))
	require.Equal(t, regions.Unchanged, report(regions.Healthy))
}
