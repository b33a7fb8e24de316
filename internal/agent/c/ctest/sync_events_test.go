package ctest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// told renders the events about the objects that the program named ("name address" lines on stdout), one a line, the threads T1, T2, … as they are.
func told(l *log, stdout string, types ...wire.Type) []string {
	names := map[uint64]string{}
	for _, line := range strings.Split(stdout, "\n") {
		var name string
		var addr uint64
		if n, _ := fmt.Sscanf(line, "%s 0x%x", &name, &addr); n == 2 {
			names[addr] = name
		}
	}
	want := map[wire.Type]bool{}
	for _, t := range types {
		want[t] = true
	}
	var lines []string
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if !want[e.Type] {
			continue
		}
		text := ""
		held := func(list []wire.Held) string {
			var out []string
			for _, h := range list {
				name := names[h.Obj]
				if h.Mode == uint8(wire.ModeShared) {
					name += "(shared)"
				}
				out = append(out, name)
			}
			return "holding [" + strings.Join(out, " ") + "]"
		}
		obj, mode := uint64(0), ""
		switch e.Type {
		case wire.TypeOrder:
			o := wire.DecodeOrder(e.Words)
			obj = o.Obj
			if o.Mode == wire.ModeShared {
				mode = "(shared)"
			}
			text = fmt.Sprintf("takes %s%s by %v %s", names[obj], mode, o.How, held(o.Held))
		case wire.TypeWant:
			w := wire.DecodeWant(e.Words)
			obj = w.Obj
			if w.Mode == wire.ModeShared {
				mode = "(shared)"
			}
			text = fmt.Sprintf("wants %s%s by %v value %d %s", names[obj], mode, w.How, w.Value, held(w.Held))
			if w.Kind == wire.ObjectMutex || w.Kind == wire.ObjectRwlock { // value is a tid
				text = fmt.Sprintf("wants %s%s by %v owner %v %s", names[obj], mode, w.How, w.Value != 0, held(w.Held))
			}
		case wire.TypeWantEnd:
			w := wire.DecodeWantEnd(e.Words)
			obj, text = w.Obj, fmt.Sprintf("ends waiting for %s with %d", names[w.Obj], w.Result)
		case wire.TypeInit:
			i := wire.DecodeInit(e.Words)
			obj, text = i.Obj, fmt.Sprintf("init %s %v %v", names[i.Obj], i.Kind, i.Flags&wire.ObjFlagStatic != 0)
		case wire.TypeDestroy:
			d := wire.DecodeDestroy(e.Words)
			obj, text = d.Obj, fmt.Sprintf("destroy %s", names[d.Obj])
		case wire.TypeBlockGone:
			b := wire.DecodeBlockGone(e.Words)
			obj, text = b.Block, fmt.Sprintf("block of %s gone", names[b.Block])
		case wire.TypeSemPost:
			p := wire.DecodeSemPost(e.Words)
			obj, text = p.Obj, fmt.Sprintf("posts %s", names[p.Obj])
		case wire.TypeOnceBegin:
			o := wire.DecodeOnceBegin(e.Words)
			obj, text = o.Obj, fmt.Sprintf("runs %s", names[o.Obj])
		case wire.TypeOnceEnd:
			o := wire.DecodeOnceEnd(e.Words)
			obj, text = o.Obj, fmt.Sprintf("ends %s done %d", names[o.Obj], o.Done)
		case wire.TypeBarrierArrive:
			b := wire.DecodeBarrierArrive(e.Words)
			obj, text = b.Obj, fmt.Sprintf("arrives at %s of %d", names[b.Obj], b.Count)
		case wire.TypeBarrierLeave:
			b := wire.DecodeBarrierLeave(e.Words)
			obj, text = b.Obj, fmt.Sprintf("leaves %s", names[b.Obj])
		}
		if names[obj] != "" {
			lines = append(lines, fmt.Sprintf("T%d %s", e.Thread, text))
		}
	}
	return lines
}

// What the agent sends in filtered mode for orders (none before there was a second thread), blocking waits of each kind, their ends by grant, cancellation and longjmp, semaphores as locks
// and as hand-over, initialisers, and objects that are made anew where others were: exactly these events, in this order. Of an object that none of them names (bar, l, s, never) not even its init is sent.
func TestSyncEvents(t *testing.T) {
	prog := compile(t, "sync_events.c", "-Wno-unused-result")
	orders := []wire.Type{wire.TypeOrder}
	waits := []wire.Type{wire.TypeOrder, wire.TypeWant, wire.TypeWantEnd, wire.TypeSemPost, wire.TypeOnceBegin, wire.TypeOnceEnd,
		wire.TypeBarrierArrive, wire.TypeBarrierLeave}
	for _, c := range []struct {
		name  string
		types []wire.Type
		want  string
	}{
		{"order", orders, `
T2 takes b by block holding [a]
T1 takes b by block holding [a]`},
		{"order-since", orders, `
T1 takes b by block holding [a]`},
		{"renewed", []wire.Type{wire.TypeOrder, wire.TypeInit, wire.TypeDestroy, wire.TypeBlockGone}, `
T1 init a mutex true
T1 init b mutex true
T1 takes b by block holding [a]
T1 destroy b
T1 init b mutex false
T1 takes b by block holding [a]
T1 init g mutex true
T1 takes g by block holding [a]
T1 block of g gone
T1 init g mutex true
T1 takes g by block holding [a]
T1 block of g gone`},
		{"mutex", waits, `
T2 wants a by block owner true holding [d]
T2 ends waiting for a with 0
T2 takes a by block holding [d]`},
		{"read", waits, `
T2 wants rw(shared) by block owner true holding []
T2 ends waiting for rw with 0`},
		{"write", waits, `
T2 wants rw by block owner false holding []
T2 ends waiting for rw with 0`},
		{"spin", waits, `
T2 wants l by block value 0 holding []
T2 ends waiting for l with 0`},
		{"sem-lock", waits, `
T1 takes a by block holding [s]
T3 wants s by block value 3 holding []
T3 ends waiting for s with 0`},
		{"sem-handover", waits, `
T2 wants s by block value 0 holding []
T2 ends waiting for s with 0
T1 posts s`},
		{"barrier", waits, `
T2 arrives at bar of 2
T2 wants bar by block value 2 holding []
T1 arrives at bar of 2
T1 leaves bar
T2 ends waiting for bar with 0
T2 leaves bar`},
		{"cond", waits, `
T2 takes a by block holding [b]
T2 wants c by block value 0 holding [b]
T2 ends waiting for c with 0
T2 takes a by cond holding [b]`},
		{"cond-cancelled", waits, `
T2 takes a by block holding [b]
T2 wants c by block value 0 holding [b]
T2 ends waiting for c with 125
T2 takes a by cond holding [b]`},
		{"sem-cancelled", waits, `
T2 wants never by block value 0 holding []
T2 ends waiting for never with 125`},
		{"once", waits, `
T2 runs o
T3 wants o by block value 0 holding []
T2 ends o done 1
T3 ends waiting for o with 0`},
		{"once-exit", waits, `
T2 runs o
T2 ends o done 0`},
		{"nested", waits, `
T2 wants never by block value 0 holding []
T2 wants s by block value 0 holding []
T2 ends waiting for s with 0
T2 wants never by block value 0 holding []
T2 ends waiting for never with 0`},
		{"left", waits, `
T1 wants never by block value 0 holding []
T1 ends waiting for never with 4
T1 wants never by timed value 0 holding []
T1 ends waiting for never with 110`},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := filtered
			config.Heap, config.AllocDepth = 1, 16
			r, l, _ := under(t, config, nil, prog, c.name)
			if r.state != "exit status 0" {
				t.Fatalf("%+v", r)
			}
			got := strings.Join(told(l, r.stdout, c.types...), "\n")
			if want := strings.TrimSpace(c.want); !alike(got, want, c.name) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// alike compares; the two threads at a barrier may leave in either order.
func alike(got, want, name string) bool {
	if name == "barrier" {
		return sorted(got) == sorted(want)
	}
	return got == want
}

// Exceptions pass through std::call_once and initialisers of statics as natively, also nested ones; the agent says that the initialiser did not end
// well, forgets it as held, and sees the next attempt. Nothing in the standard library's locks is misuse.
func TestSyncCxx(t *testing.T) {
	prog := compile(t, "sync_cxx.cc", "-std=c++20", "-O2", "-no-pie") // the same addresses in both runs
	for name, config := range map[string]wire.Config{"filtered": filtered, "all": all} {
		t.Run(name, func(t *testing.T) {
			want := native(t, os.Environ(), prog)
			got, l, _ := under(t, config, nil, prog)
			if got != want || got.state != "exit status 0" {
				t.Errorf("native: %+v\nagent:  %+v", want, got)
			}
			for _, m := range misuses(l) {
				t.Errorf("%v of %v %#x", m.What, m.Kind, m.Obj)
			}
			expect := `
T1 runs flag
T1 ends flag done 0
T1 runs flag
T1 ends flag done 0
T1 runs flag
T1 ends flag done 1
T1 runs outer
T1 runs inner
T1 ends inner done 0
T1 ends outer done 0`
			if got := strings.Join(told(l, got.stdout, wire.TypeOnceBegin, wire.TypeOnceEnd), "\n"); got != strings.TrimSpace(expect) {
				t.Errorf("got:\n%s\nwant:%s", got, expect)
			}
			// The guard of a static: two failures, then made; by its kind, since it has no name.
			var guards []string
			for _, e := range l.of(wire.TypeOnceEnd) {
				if o := wire.DecodeOnceEnd(e.Words); o.Kind == wire.ObjectGuard {
					guards = append(guards, fmt.Sprint(o.Done))
				}
			}
			if g := strings.Join(guards, " "); g != "0 0 1 1" {
				t.Errorf("guards ended with %s, want 0 0 1 1", g)
			}
		})
	}
}

// A C program that dlopens a C++ library with RTLD_LOCAL: its guards come to us, and libstdc++ is out of our sight.
func TestSyncGuardsOfLocalLibrary(t *testing.T) {
	lib := compile(t, "sync_guard_lib.cc", "-shared", "-fPIC")
	prog := compile(t, "sync_guard_main.c", "-ldl")
	for name, config := range map[string]wire.Config{"filtered": filtered, "all": all} {
		t.Run(name, func(t *testing.T) { same(t, config, prog, lib) })
	}
}
