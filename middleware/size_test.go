package middleware

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A field more puts every operation into the next size class of the allocator,
// 1,152 bytes: it keeps 8 of the 1,024 for itself.
func TestAnOperationFitsInAKibibyte(t *testing.T) { // DESIGN 5
	require.LessOrEqual(t, unsafe.Sizeof(opContext{}), uintptr(1016))
}
