package access

import (
	"cmp"
	"debug/elf"
	"encoding/hex"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/x86"
)

// What compilers make of functions that keep the address of their frame, and of such that tell it, as their names say.
func TestFrames(t *testing.T) {
	t.Parallel()
	for _, compiler := range []string{"gcc", "clang"} {
		for _, level := range []string{"-O0", "-O1", "-O2", "-O3 -march=haswell", "-O2 -fno-omit-frame-pointer"} {
			t.Run(compiler+level, func(t *testing.T) {
				t.Parallel()
				exe := filepath.Join(t.TempDir(), "frames")
				args := append([]string{"-Wall", "-Wno-return-local-addr", "-Wno-dangling-pointer", "-o", exe, "testdata/frames.c"}, strings.Fields(level)...)
				if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil && !strings.Contains(string(out), "unknown warning option") {
					t.Fatalf("%v\n%s", err, out)
				}
				judgeFrames(t, exe, level == "-O0")
			})
		}
	}
}

func judgeFrames(t *testing.T, exe string, plain bool) {
	f, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var begin [][2]uint64
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			begin = append(begin, [2]uint64{s.Value, s.Value + s.Size})
		}
	}
	slices.SortFunc(begin, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
	seen := 0
	for _, s := range symbols {
		keeps, tells := strings.HasPrefix(s.Name, "keeps_"), strings.HasPrefix(s.Name, "tells_")
		if !keeps && !tells || strings.Contains(s.Name, ".") {
			continue
		}
		seen++
		section := f.Sections[s.Section]
		code := make([]byte, s.Size)
		if _, err := section.ReadAt(code, int64(s.Value-section.Addr)); err != nil {
			t.Fatal(err)
		}
		own, all := ownSites(t, code, s.Value, begin)
		// Without optimization a pointer lies in memory.
		if want := keeps && !(plain && strings.HasPrefix(s.Name, "keeps_by_pointer")); want && own == 0 || !want && own > 0 {
			t.Errorf("%s: %d of %d accesses are to a frame that nobody else knows", s.Name, own, all)
		}
	}
	if seen < 12 {
		t.Errorf("%d functions", seen)
	}
}

// sitesOf gives the sites of code, taken as of functions.
func sitesOf(t *testing.T, code []byte, at uint64, functions, stubs [][2]uint64) (sites []*site) {
	t.Helper()
	f := (&frameTables{all: functions, stubs: stubs}).from(at)
	for n := 0; n < len(code); {
		in, err := x86.Decode(code[n:])
		if err != nil {
			t.Fatal(err)
		}
		i := &engine.Insn{At: at + uint64(n), Inst: in, Code: code[n:]}
		f.take(i)
		if data, _ := dataOf(&in); data != 0 {
			s := &site{at: i.At, data: data}
			sites = append(sites, s)
			f.site(i, s)
		}
		n += in.Len
	}
	f.close()
	return sites
}

// ownSites counts the sites of a function that are of its own frame.
func ownSites(t *testing.T, code []byte, at uint64, functions [][2]uint64) (own, all int) {
	sites := sitesOf(t, code, at, functions, [][2]uint64{{0x1000, 0x1200}})
	for _, s := range sites {
		if s.own {
			own++
		}
	}
	return own, len(sites)
}

// Flags are dead before an access to the frame where what follows overwrites all of them before it reads one, whatever comes in between; not where code goes on elsewhere before. What a site's gate destroys otherwise is a
// program's condition.
func TestFrameFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		code string
		dead bool
	}{
		{"overwritten", "01d1", true},                          // add ecx, edx
		{"by the access itself", "014c24f0", true},             // add [rsp-16], ecx, which is told itself
		{"behind what leaves them", "89d148ffc001d1", true},    // mov; inc rax; add: inc leaves CF, which add takes
		{"not all", "48ffc011d1", false},                       // inc rax; adc
		{"kept by a shift by nothing", "d3e00f94c1", false},    // shl eax, cl; sete
		{"read", "0f94c101d1", false},                          // sete cl; add
		{"read together", "11d1", false},                       // adc ecx, edx
		{"a jump", "eb0001d1", false},                          // jmp; add
		{"a condition", "740001d1", false},                     // je; add
		{"a call", "e8fbffffff01d1", false},                    // call; add
		{"read behind what does not write", "89d119c0", false}, // mov; sbb eax, eax
	} {
		code, err := hex.DecodeString("4839f0" + "8b4424f8" + c.code + "31c0c3") // cmp rax, rsi; mov eax, [rsp-8]; …; xor eax, eax; ret
		if err != nil {
			t.Fatal(err)
		}
		const at = 0x2000
		sites := sitesOf(t, code, at, [][2]uint64{{at, at + uint64(len(code))}}, [][2]uint64{{0x1000, 0x3000}})
		if len(sites) == 0 || !sites[0].own {
			t.Fatalf("%s: no access to the frame", c.name)
		}
		if sites[0].gate != c.dead {
			t.Errorf("%s: dead %v", c.name, sites[0].gate)
		}
	}
	// The access's own instruction reads them first.
	code, _ := hex.DecodeString("134424f801d1c3") // adc eax, [rsp-8]; add ecx, edx; ret
	f := (&frameTables{all: [][2]uint64{{0x2000, 0x2000 + uint64(len(code))}}}).from(0x2000)
	in, err := x86.Decode(code)
	if err != nil {
		t.Fatal(err)
	}
	i, s := &engine.Insn{At: 0x2000, Inst: in, Code: code}, &site{at: 0x2000, data: read}
	f.take(i)
	f.site(i, s)
	if in, err = x86.Decode(code[in.Len:]); err != nil {
		t.Fatal(err)
	}
	f.take(&engine.Insn{At: 0x2004, Inst: in, Code: code[4:]})
	if s.gate {
		t.Error("adc: dead")
	}

	// What is told apart has two gates: a trampoline was longer than its site had said.
	for data, gates := range map[uint64]int32{judged | write | read: 1, judged | write | read | apart: 2} {
		code, _ := hex.DecodeString("83442408" + "01" + "01d1c3") // add dword [rsp+8], 1; add ecx, edx; ret
		f := (&frameTables{all: [][2]uint64{{0x2000, 0x2000 + uint64(len(code))}}}).from(0x2000)
		s := &site{at: 0x2000, data: data, size: 1}
		for n := 0; n < len(code); {
			in, err := x86.Decode(code[n:])
			if err != nil {
				t.Fatal(err)
			}
			i := &engine.Insn{At: 0x2000 + uint64(n), Inst: in, Code: code[n:]}
			if f.take(i); n == 0 {
				f.site(i, s)
			}
			n += in.Len
		}
		if f.close(); !s.gate || s.size != 1+gates*recipe.GateSize {
			t.Errorf("%#x: %+v", data, s)
		}
	}
}
