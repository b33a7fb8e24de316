package ctest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// Each kind of channel: results as natively; in all mode the reader acquires the very channel that the writer released before, and in
// filtered mode nothing is sent.
func TestChannels(t *testing.T) {
	prog := compile(t, "fd_channels.c")
	if l := same(t, filtered, prog); len(l.of(wire.TypeChannelRelease))+len(l.of(wire.TypeChannelAcquire)) > 0 {
		t.Error("channel events in filtered mode")
	}
	want := native(t, nil, prog)
	got, l, _ := under(t, all, nil, prog)
	if got != want {
		t.Errorf("native: %+v\nagent:  %+v", want, got)
	}
	type side struct {
		fd      int32
		channel uint64
		kind    wire.Channel
	}
	var released, acquired []side
	l.mu.Lock()
	for _, e := range l.events {
		switch e.Type {
		case wire.TypeChannelRelease:
			r := wire.DecodeChannelRelease(e.Words)
			released = append(released, side{r.Fd, r.Channel, r.Kind})
		case wire.TypeChannelAcquire:
			a := wire.DecodeChannelAcquire(e.Words)
			acquired = append(acquired, side{a.Fd, a.Channel, a.Kind})
		}
	}
	l.mu.Unlock()
	kinds := map[string]wire.Channel{"pipe": wire.ChannelPipe, "dup": wire.ChannelPipe, "again": wire.ChannelPipe, "socketpair": wire.ChannelSocket,
		"socketpair-back": wire.ChannelSocket, "tcp": wire.ChannelSocket, "tcp-back": wire.ChannelSocket, "eventfd": wire.ChannelEventfd,
		"file": wire.ChannelFile, "poll": wire.ChannelPipe, "select": wire.ChannelPipe, "epoll": wire.ChannelPipe}
	seen := 0
	for _, line := range strings.Split(got.stdout, "\n") {
		var name string
		var w, r int32
		if n, _ := fmt.Sscanf(line, "%s %d %d :", &name, &w, &r); n != 3 || kinds[name] == 0 {
			continue
		}
		seen++
		found := false
		for _, a := range acquired {
			for _, b := range released {
				found = found || a.fd == r && b.fd == w && a.channel == b.channel && a.kind == kinds[name] && b.kind == a.kind
			}
		}
		if !found {
			t.Errorf("%s: no release of %d that an acquire of %d matches\nreleased %v\nacquired %v", name, w, r, released, acquired)
		}
	}
	if seen != len(kinds) {
		t.Errorf("%d of %d channels in the output:\n%s", seen, len(kinds), got.stdout)
	}
	// The two directions of a socket are two channels.
	dir := map[int32]map[uint64]bool{}
	for _, s := range append(released, acquired...) {
		if s.kind == wire.ChannelSocket {
			if dir[s.fd] == nil {
				dir[s.fd] = map[uint64]bool{}
			}
			dir[s.fd][s.channel] = true
		}
	}
	for fd, d := range dir {
		if len(d) > 3 { // in and out; a TCP socket that was looked at before it was connected has had another name
			t.Errorf("descriptor %d is %d channels", fd, len(d))
		}
	}
	if n := len(l.of(wire.TypeSignalTaken)); n != 1 {
		t.Errorf("%d signals taken, want 1", n)
	}
}
