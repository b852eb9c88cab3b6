//go:build race

package ownership_test

const raceEnabled = true
