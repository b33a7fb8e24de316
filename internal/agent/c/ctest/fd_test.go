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

// Message queues, semaphores of System V and vmsplice order threads as pipes do; and memory that shmdt takes away takes its locks with it, so
// that what is attached there next has locks of its own.
func TestQueues(t *testing.T) {
	prog := compile(t, "fd_queues.c", "-O1")
	bothModes(t, func(t *testing.T, config wire.Config) {
		l := same(t, config, prog)
		if n := len(l.of(wire.TypeBlockGone)); n != 2 {
			t.Errorf("%d block-gone, want one for each segment", n)
		}
		if n := len(l.of(wire.TypeMisuse)); n != 0 {
			t.Errorf("%d misuses", n)
		}
		released, acquired := map[wire.Channel]map[uint64]int{}, map[wire.Channel]map[uint64]int{}
		count := func(to map[wire.Channel]map[uint64]int, kind wire.Channel, channel uint64) {
			if to[kind] == nil {
				to[kind] = map[uint64]int{}
			}
			to[kind][channel]++
		}
		for _, e := range l.of(wire.TypeChannelRelease) {
			if r := wire.DecodeChannelRelease(e.Words); e.Thread == 2 {
				count(released, r.Kind, r.Channel)
			}
		}
		for _, e := range l.of(wire.TypeChannelAcquire) {
			a := wire.DecodeChannelAcquire(e.Words)
			count(acquired, a.Kind, a.Channel)
		}
		if config.All == 0 {
			if len(released)+len(acquired) != 0 {
				t.Error("channel events in filtered mode")
			}
			return
		}
		for _, kind := range []wire.Channel{wire.ChannelFile, wire.ChannelSysvMsg, wire.ChannelSysvSem, wire.ChannelPipe} {
			both := false
			for c := range released[kind] {
				both = both || acquired[kind][c] > 0
			}
			if !both {
				t.Errorf("%v: nothing that the giver released was acquired", kind)
			}
		}
		maps := 0
		for _, e := range l.of(wire.TypeMmap) {
			if m := wire.DecodeMmap(e.Words); m.Fd == -1 && m.Mflags == 1 {
				maps++
			}
		}
		if maps != 2 {
			t.Errorf("%d segments attached, want 2", maps)
		}
	})
}
