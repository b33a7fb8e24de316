package hook

import (
	"bytes"
	"debug/elf"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/x86"
)

// In place of rdtsc the hook is called below the red zone; what it does not write is the program's.
func TestClock(t *testing.T) {
	m := newMachine(t, &clock{siteAt, nextAt, hookAt})
	rsp := m.GPR[x86.RSP.Num()].Bits
	m.before, m.after = m.State, m.State
	rax := x86.RAX.Num()
	m.writes = map[int]bool{rax: true}
	called := 0
	m.run(func(in *x86.Inst) {
		if in.Flow != x86.FlowIndirectCall {
			t.Fatal(in.Op)
		}
		called++
		if sp := m.GPR[x86.RSP.Num()].Bits; sp > rsp-128 {
			t.Fatalf("the stack pointer is %d below", rsp-sp)
		}
		if got := m.GPR[rax].Bits; got != hookAt {
			t.Fatalf("%#x is called", got)
		}
		m.GPR[rax], m.GPR[x86.RDX.Num()] = x86.Exactly(rand.Uint64()), x86.Exactly(rand.Uint64())
		m.after.GPR[rax], m.after.GPR[x86.RDX.Num()] = m.GPR[rax], m.GPR[x86.RDX.Num()]
	})
	if called != 1 || m.GPR != m.after.GPR {
		t.Fatalf("%d calls, then %x, not %x", called, m.GPR, m.after.GPR)
	}
}

// The places are objdump's: clocks in ld.so, and system calls in libc, which have many; and the bytes in the middle of an instruction are none.
func TestPlacesBegin(t *testing.T) {
	for _, c := range []struct {
		path, pattern string
		each          func([]byte, func(int))
	}{{"/lib64/ld-linux-x86-64.so.2", "rdtscp?", eachClock}, {"/lib/x86_64-linux-gnu/libc.so.6", "syscall", eachCall}} {
		path, err := filepath.EvalSymlinks(c.path)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("objdump", "-d", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		want := map[uint64]bool{}
		for _, line := range regexp.MustCompile(`(?m)^ *([0-9a-f]+):\t[0-9a-f ]+\t`+c.pattern+` *$`).FindAllSubmatch(out, -1) {
			at, _ := strconv.ParseUint(string(line[1]), 16, 64)
			want[at] = true
		}
		img, err := image.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		m, s := &engine.Module{Image: img}, starts{}
		places, unframed, other := 0, 0, 0
		for _, seg := range img.Segments() {
			if seg.Flags&elf.PF_X == 0 {
				continue
			}
			code := img.Bytes(seg.Addr, seg.FileSize)
			c.each(code, func(i int) {
				at := seg.Addr + uint64(i)
				switch _, framed := s.of(m).function(at); {
				case !framed && want[at]:
					unframed++
				case s.begins(m, at) != want[at]:
					t.Errorf("%s: %#x: begins there: %v", path, at, !want[at])
				case want[at]:
					places++
				}
			})
			// Other places are instructions' beginnings only where the function's own code says so.
			for i := 0; i < len(code); i += 37 {
				if !s.begins(m, seg.Addr+uint64(i)) {
					other++
				}
			}
		}
		if places == 0 || places+unframed != len(want) || unframed > 0 || other == 0 {
			t.Errorf("%s: %d of %d places, %d in no function; %d others do not begin an instruction", path, places, len(want), unframed, other)
		}
		img.Close()
	}
}

func TestEachClock(t *testing.T) {
	code := bytes.Join([][]byte{{0x0f}, opRdtscp, opRdtsc, {0x0f, 0x01}, opRdtsc, opRdtscp, {0x0f}}, nil)
	var got []int
	eachClock(code, func(i int) { got = append(got, i) })
	if want := []int{1, 4, 8, 10}; len(got) != 4 || [4]int(got) != [4]int(want) {
		t.Errorf("%v, not %v", got, want)
	}
}

func FuzzStarts(f *testing.F) {
	f.Add(uint64(0x1000), []byte{1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 1, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0}, uint64(0x1018))
	f.Add(uint64(0), []byte{1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 255, 255, 255, 255}, uint64(0))
	f.Fuzz(func(t *testing.T, addr uint64, b []byte, at uint64) {
		s := parseStarts(addr, b)
		if begin, ok := s.function(at); ok && (begin > at || len(s.table) > len(b)) {
			t.Errorf("%#x begins at %#x", at, begin)
		}
	})
}
