package engine

import (
	"bytes"
	"testing"
)

// The rules that are copied for an index are those that are made for it.
func TestRulesAreCopied(t *testing.T) {
	for _, runs := range []uint64{0, 0x7f1234567890, elsewhere, elsewhere >> 8, ^uint64(0)} {
		if !bytes.Equal(frameRules(runs), makeRules(runs)) {
			t.Errorf("for %#x they are others", runs)
		}
	}
}
