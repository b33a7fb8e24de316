package ctest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// Every function that sets a signal mask returns what it returns natively, and the events say, in their order, what the kernel says.
func TestSignalMasks(t *testing.T) {
	prog := compile(t, "signal_masks.c", "-O1", "-Wno-nonnull", "-Wno-stringop-overflow", "-Wno-stringop-overread")
	if l := same(t, filtered, prog); len(l.of(wire.TypeSigmask)) > 0 {
		t.Error("sigmask in filtered mode")
	}
	want := native(t, nil, prog)
	got, l, _ := under(t, all, nil, prog)
	sameText(t, "stdout", want.stdout, got.stdout)
	if want != got {
		t.Errorf("native: %+v\nagent:  %+v", want, got)
	}
	var said, sent []string
	for _, line := range strings.Split(strings.TrimSpace(got.stdout), "\n") {
		if !strings.HasPrefix(line, "#") {
			said = append(said, line)
		}
	}
	for _, e := range l.of(wire.TypeSigmask) {
		m := wire.DecodeSigmask(e.Words)
		sent = append(sent, fmt.Sprintf("%v %x", m.How, m.Mask))
	}
	sameText(t, "masks", strings.Join(said, "\n"), strings.Join(sent, "\n"))
	if len(said) < 40 {
		t.Errorf("only %d changes", len(said))
	}
	inert(t, prog)
}
