package ctest

import (
	"os"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// Every way for a thread to begin and end returns what it returns natively; and the events of each thread begin with thread-start, end with
// thread-exit, and have their thread-create, join and detach.
func TestThreads(t *testing.T) {
	prog := compile(t, "core_threads.c")
	for name, config := range map[string]wire.Config{"filtered": filtered, "all": all} {
		t.Run(name, func(t *testing.T) {
			l := same(t, config, prog)
			created := map[uint32]bool{}
			for _, e := range l.of(wire.TypeThreadCreate) {
				c := wire.DecodeThreadCreate(e.Words)
				if c.Stack == 0 {
					t.Errorf("T%d created without a stack", c.Child)
				}
				created[c.Child] = true
			}
			// 8 by pthread_create, 3 by thrd_create, and the one that failed.
			if len(created) != 12 {
				t.Errorf("%d threads created, want 12", len(created))
			}
			if n := len(l.of(wire.TypeThreadCreateFailed)); n != 1 {
				t.Errorf("%d thread-create-failed, want 1", n)
			}
			first, last := map[uint32]wire.Type{}, map[uint32]wire.Type{}
			for _, e := range l.events {
				if e.Type == wire.TypeProcess {
					continue
				}
				if _, ok := first[e.Thread]; !ok {
					first[e.Thread] = e.Type
				}
				last[e.Thread] = e.Type
			}
			for n := uint32(1); n <= 13; n++ {
				// T12 is detached and ends when the process may have ended already; T13 never was.
				if n < 13 && first[n] != wire.TypeThreadStart {
					t.Errorf("T%d begins with %v", n, first[n])
				}
				if n < 12 && last[n] != wire.TypeThreadExit {
					t.Errorf("T%d ends with %v", n, last[n])
				}
			}
			exits := map[uint32]uint64{}
			for _, e := range l.of(wire.TypeThreadExit) {
				exits[e.Thread] = wire.DecodeThreadExit(e.Words).Value
			}
			joins := map[uint32]int{}
			for _, e := range l.of(wire.TypeThreadJoin) {
				if j := wire.DecodeThreadJoin(e.Words); j.Result == 0 {
					joins[j.Target]++
				}
			}
			if exits[2] != 1 || exits[3] != 2 || exits[4] != ^uint64(0) || exits[5] != 3 {
				t.Errorf("exit values %#v", exits)
			}
			for _, n := range []uint32{2, 3, 4, 5} {
				if joins[n] != 1 {
					t.Errorf("T%d joined %d times", n, joins[n])
				}
			}
			if n := len(l.of(wire.TypeThreadDetach)); n != 2 {
				t.Errorf("%d detached, want 2", n)
			}
			var misuse []wire.Misuse
			for _, e := range l.of(wire.TypeMisuse) {
				misuse = append(misuse, wire.DecodeMisuse(e.Words).What)
			}
			if len(misuse) != 1 || misuse[0] != wire.MisuseJoinSelf {
				t.Errorf("misuse %v, want only the join of itself", misuse)
			}
		})
	}
}

// The environment of the program and of its children is what it is natively, with and without an LD_PRELOAD of the user's.
func TestEnvironment(t *testing.T) {
	for _, extra := range [][]string{nil, {"LD_PRELOAD="}, {"LD_PRELOAD=libc.so.6"}, {"LD_PRELOAD=libc.so.6:libm.so.6"}, {"A=1", "LD_PRELOAD=libm.so.6 libc.so.6", "Z=2"}} {
		env := append([]string{"PATH=" + os.Getenv("PATH"), "X=y"}, extra...)
		for _, argv := range [][]string{{"/usr/bin/env"}, {"/bin/sh", "-c", "env; env"}, {"/usr/bin/cat", "/proc/self/environ"}} {
			want := native(t, env, argv...)
			got, _, _ := under(t, filtered, env, argv...)
			got.stdout = strings.TrimRight(got.stdout, "\x00")
			want.stdout = strings.TrimRight(want.stdout, "\x00")
			if argv[0] == "/bin/sh" { // sh sorts what it does not change; a child's may lie in another order
				got.stdout, want.stdout = sorted(got.stdout), sorted(want.stdout)
			}
			if got != want {
				t.Errorf("%v %v:\nnative: %+v\nagent:  %+v", extra, argv, want, got)
			}
		}
	}
}

func sorted(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		for j := i; j > 0 && lines[j] < lines[j-1]; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
	return strings.Join(lines, "\n")
}
