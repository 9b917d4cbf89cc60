package ref_test

import (
	"testing"

	"github.com/flashdecode/flashdecode/backend/backendtest"
	"github.com/flashdecode/flashdecode/backend/ref"
	"github.com/flashdecode/flashdecode/ops"
)

// TestConformance holds the reference against itself, which proves little of its formulae (package model's goldens
// do) but that it is deterministic, batch invariant, refuses what it must and never reads what is poisoned.
func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Options{Few: testing.Short(), New: func() (ops.Backend, error) { return ref.New(), nil }})
}
