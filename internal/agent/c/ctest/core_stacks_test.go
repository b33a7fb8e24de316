package ctest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// The walker's stacks are those of glibc's backtrace(), frame by frame: with and without frame pointers, through alloca and realigned frames,
// libc's callbacks, signal handlers on both kinds of stack, coroutines, threads, and libraries that come and go.
func TestStacks(t *testing.T) {
	lib := compile(t, "core_lib.c", "-O2", "-shared", "-fPIC")
	for _, flags := range [][]string{{"-O0"}, {"-O2", "-fomit-frame-pointer"}, {"-O2", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"}, {"-O2", "-no-pie", "-fcf-protection=full"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			prog := compile(t, "core_stacks.c", append([]string{"-rdynamic"}, flags...)...)
			c := filtered
			c.StackDepth = 32
			r, l, _ := under(t, c, nil, prog, lib)
			if r.state != "exit status 0" {
				t.Fatalf("%+v", r)
			}
			stacks := map[uint32][]uint64{}
			for _, e := range l.of(wire.TypeStack) {
				s := wire.DecodeStack(e.Words)
				stacks[s.ID] = s.PCs
			}
			agent := library2(l) // [start,end) of the agent: its frames are not the program's
			var got [][]uint64
			for _, e := range l.of(wire.TypeThreadCancel) {
				got = append(got, stacks[wire.DecodeThreadCancel(e.Words).Stack])
			}
			lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
			if len(got) != len(lines) {
				t.Fatalf("%d stacks, %d lines", len(got), len(lines))
			}
			for i, line := range lines {
				f := strings.Fields(line)
				var want []uint64
				for _, h := range f[1:] {
					v, err := strconv.ParseUint(h, 16, 64)
					if err != nil {
						t.Fatal(err)
					}
					if v < agent[0] || v >= agent[1] {
						want = append(want, v)
					}
				}
				// The innermost frame is in mark() itself, at another place.
				have := got[i][1:]
				if f[0] == "signal" || f[0] == "altstack" {
					// backtrace() reports the interrupted pc as it is, we one more.
					for j := range have {
						if j < len(want) && have[j] == want[j]+1 {
							have[j]--
						}
					}
				}
				// backtrace() ends with the frame below _start or clone; so do we.
				if fmt.Sprintf("%x", have) != fmt.Sprintf("%x", want) {
					t.Errorf("%s:\nbacktrace %x\nagent     %x", f[0], want, have)
				}
			}
		})
	}
}

func library2(l *log) [2]uint64 {
	for _, e := range l.of(wire.TypeModule) {
		m := wire.DecodeModule(e.Words)
		if strings.Contains(string(m.Tail[m.BuildIDLen:]), "libripstop.so") {
			return [2]uint64{m.Base, m.End}
		}
	}
	return [2]uint64{}
}

// Modules: the program, the vdso and libc are announced with build-ids; a library that is closed goes, and comes back as another.
func TestModules(t *testing.T) {
	lib := compile(t, "core_lib.c", "-O2", "-shared", "-fPIC")
	prog := compile(t, "core_stacks.c", "-rdynamic")
	_, l, _ := under(t, filtered, nil, prog, lib)
	names := map[string]int{}
	ids := map[uint32]string{}
	for _, e := range l.of(wire.TypeModule) {
		m := wire.DecodeModule(e.Words)
		name := string(m.Tail[m.BuildIDLen:])
		names[name]++
		if ids[m.ID] != "" {
			t.Errorf("module id %d is %s and %s", m.ID, ids[m.ID], name)
		}
		ids[m.ID] = name
		if m.Base >= m.End || m.Base%4096 != 0 {
			t.Errorf("%s at %#x-%#x", name, m.Base, m.End)
		}
		if m.BuildIDLen != 20 {
			t.Errorf("%s: build-id of %d bytes", name, m.BuildIDLen)
		}
	}
	if names[prog] != 1 || names["[vdso]"] != 1 || names["/lib/x86_64-linux-gnu/libc.so.6"] != 1 {
		t.Errorf("modules %v", names)
	}
	if names[lib] != 2 {
		t.Errorf("%s announced %d times, want 2", lib, names[lib])
	}
	gone := map[string]int{}
	for _, e := range l.of(wire.TypeModuleGone) {
		gone[ids[wire.DecodeModuleGone(e.Words).ID]]++
	}
	if gone[lib] != 1 || len(gone) != 1 {
		t.Errorf("gone %v, want %s once", gone, lib)
	}
}
