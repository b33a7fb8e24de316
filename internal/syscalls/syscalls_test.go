package syscalls

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

// The table is the kernel's headers' as far as these go, and what is known of arguments is what every program knows.
func TestTable(t *testing.T) {
	header, err := os.ReadFile("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range regexp.MustCompile(`#define __NR_(\w+) (\d+)`).FindAllSubmatch(header, -1) {
		number, _ := strconv.Atoi(string(m[2]))
		if got := Name(number); got != string(m[1]) {
			t.Errorf("%d is %s, not %s", number, m[1], got)
		}
		if c := Named(string(m[1])); c == nil || c.Number != number {
			t.Errorf("%s is %v, not %d", m[1], c, number)
		}
		n++
	}
	if n < 350 {
		t.Fatalf("only %d numbers in the header", n)
	}
	for name, want := range map[string]string{
		"read": "[{fd fd} {buf pointer} {count size}]", "openat": "[{dfd fd} {filename string} {flags flags} {mode number}]", "getpid": "[]",
		"mmap": "[{addr pointer} {len size} {prot flags} {flags flags} {fd fd} {off number}]", "execve": "[{filename string} {argv pointer} {envp pointer}]",
	} {
		c := Named(name)
		if c == nil || fmt.Sprint(c.Args) != want || !c.Known {
			t.Errorf("%s: %v, want %s", name, c, want)
		}
	}
	if Numbered(unix.SYS_UMOUNT2).Name != "umount2" || Name(1023) != "syscall_0x3ff" || Numbered(-1) != nil {
		t.Error("names by number")
	}
	for _, c := range All() {
		if c.Number >= firstSpecial {
			t.Errorf("%s is %d, which is a row of its own kind", c.Name, c.Number)
		}
		for _, a := range c.Args {
			switch a.Kind {
			case Number, FD, String, Pointer, Size, Flags:
			default:
				t.Errorf("%s: %v", c.Name, a)
			}
		}
	}
}

func TestTableErrors(t *testing.T) {
	for text, want := range map[string]string{
		"1": "no number and name", "x read": "invalid syntax", "1 a\n1 b": "twice", "1 a\n2 a": "twice", "1 a b": "no kind", "1 a b:c b:c b:c b:c b:c b:c b:c": "7 arguments",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// decoded gives code as Find takes it.
func decoded(at uint64, code []byte) func(func(uint64, *x86.Inst) bool) {
	return func(yield func(uint64, *x86.Inst) bool) {
		for len(code) > 0 {
			in, err := x86.Decode(code)
			if err != nil {
				at, code = at+1, code[1:]
				continue
			}
			if !yield(at, &in) {
				return
			}
			at, code = at+uint64(in.Len), code[in.Len:]
		}
	}
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name, code string
		want       []Site
	}{
		{"known", "b8 6e 00 00 00 0f 05 c3", []Site{{5, 2, 110, ""}}},
		{"by rax", "48 c7 c0 0f 00 00 00 0f 05", []Site{{7, 2, 15, LeftSigreturn}}},
		{"zero", "31 c0 0f 05", []Site{{2, 2, 0, ""}}},
		{"something between", "b8 e7 00 00 00 89 df 0f 05", []Site{{7, 2, 231, LeftExit}}},
		{"overwritten", "b8 e7 00 00 00 89 f8 0f 05", []Site{{7, 2, -1, ""}}},
		{"behind a jump", "b8 e7 00 00 00 eb 00 0f 05", []Site{{7, 2, -1, ""}}},
		{"behind another call", "b8 3c 00 00 00 0f 05 0f 05", []Site{{5, 2, 60, LeftExit}, {7, 2, -1, ""}}},
		{"child", "b8 38 00 00 00 0f 05", []Site{{5, 2, 56, ""}}},
		{"32 bits", "b8 01 00 00 00 cd 80 0f 34", []Site{{5, 2, -1, Left32}, {7, 2, -1, Left32}}},
		{"others", "cd 81 cc 0f 0b", nil},
		{"a hole", "b8 3c 00 00 00 06 0f 05", []Site{{6, 2, -1, ""}}},
	} {
		code := bytes.ReplaceAll([]byte(c.code), []byte(" "), nil)
		raw := make([]byte, len(code)/2)
		for i := range raw {
			v, _ := strconv.ParseUint(string(code[2*i:2*i+2]), 16, 8)
			raw[i] = byte(v)
		}
		if got := Find(decoded(0, raw)); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// In libc the sites are those that objdump sees.
func TestFindLikeObjdump(t *testing.T) {
	const libc = "/lib/x86_64-linux-gnu/libc.so.6"
	out, err := exec.Command("objdump", "-d", "--no-show-raw-insn", "-j", ".text", libc).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ *([0-9a-f]+):\s+syscall`).FindAllSubmatch(out, -1) {
		at, _ := strconv.ParseUint(string(m[1]), 16, 64)
		want[at] = true
	}
	f, err := elf.Open(libc)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	code, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for _, s := range Find(decoded(text.Addr, code)) {
		if !want[s.At] {
			t.Errorf("%#x: no syscall there", s.At)
		}
		delete(want, s.At)
		if s.Number >= 0 {
			known++
		}
	}
	if len(want) > 0 || known < 400 {
		t.Errorf("%d sites missed, %d numbers known", len(want), known)
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte("\xb8\x01\x00\x00\x00\x0f\x05"))
	f.Add([]byte("\xcd\x80\x0f\x34\x31\xc0"))
	f.Fuzz(func(t *testing.T, code []byte) {
		last := uint64(0)
		for _, s := range Find(decoded(1, code)) {
			if s.At <= last || s.Number >= 1<<31 {
				t.Fatalf("%+v", s)
			}
			last = s.At
		}
	})
}

// The code of both recipes, wherever it lies and the hook does, ends in what the hook takes it for, and says of each instruction what the program is to see.
func TestRecipes(t *testing.T) {
	for range 2000 {
		at := uint64(0x7f0000000000) + rand.Uint64N(1<<40)&^0xf
		next := at + 1<<30 - rand.Uint64N(1<<31)
		hook := rand.Uint64N(1 << 47)
		if rand.IntN(2) == 0 {
			hook = at + 1<<30 - rand.Uint64N(1<<31)
		}
		for _, r := range []patch.Recipe{Recipe{next, hook}, EntryRecipe{next, hook, 4711}} {
			code, states, err := r.Append([]byte{0x90}, at)
			if err != nil {
				t.Fatal(err)
			}
			code = code[1:]
			if len(code) > r.Size() {
				t.Fatalf("%d bytes, at most %d said", len(code), r.Size())
			}
			var text []string
			starts := map[int]bool{}
			var jumped, by uint64
			var leas []uint64
			for _, i := range instructions(code) {
				starts[i.off] = true
				text = append(text, i.in.Op)
				pc := at + uint64(i.off)
				if to, ok := i.in.Target(pc); ok {
					jumped = to
				}
				switch i.in.Op {
				case "lea":
					leas = append(leas, pc+uint64(i.in.Len)+uint64(i.in.Mems()[0].Disp))
				case "mov":
					by = uint64(i.in.Args()[1].Imm)
				case "jmp":
					if jumped == 0 {
						jumped = by
					}
				}
			}
			if jumped != hook {
				t.Fatalf("%v leads to %#x, not %#x", text, jumped, hook)
			}
			for i, s := range states {
				if !starts[s.Off] || (s.Resume != patch.Restart && !starts[s.Resume]) || i > 0 && s.Off <= states[i-1].Off {
					t.Fatalf("%v: states %+v", text, states)
				}
			}
			end := at + uint64(len(code))
			if _, entry := r.(EntryRecipe); entry {
				if len(leas) != 1 || leas[0] != end || states[0].For != next {
					t.Fatalf("%v: r11 is %#x, not %#x", text, leas, end)
				}
				continue
			}
			if len(leas) != 2 || leas[0] != end-9 || leas[1] != next || !bytes.HasPrefix(code[len(code)-9:], []byte{0x0f, 0x05, 0x48, 0x8d, 0x0d}) {
				t.Fatalf("%v: %#x", text, leas)
			}
			if states[0].For != next-2 || states[1].For != next-2 || states[1].Resume != states[1].Off || states[2].For != next {
				t.Fatalf("states %+v", states)
			}
		}
	}
}

type instruction struct {
	off int
	in  x86.Inst
}

func instructions(code []byte) (list []instruction) {
	for off := 0; off < len(code); {
		in, err := x86.Decode(code[off:])
		if err != nil {
			panic(err)
		}
		list = append(list, instruction{off, in})
		off += in.Len
	}
	return list
}

func TestRecipeOutOfReach(t *testing.T) {
	if _, _, err := (Recipe{Next: 1 << 40, Hook: 0x7f0000000000}).Append(nil, 0x7f0000000000); err == nil {
		t.Error("a site out of reach was taken")
	}
}

func profileForTest() *Profile {
	p := &Profile{Ripstop: "test", Command: []string{"prog", "arg"}, Ended: "exit status 0", Sites: []Sites{}, NotCounted: []string{"something"}}
	a := Counts{0: {Calls: 3, Errors: 1, Ticks: 3000}, 1: {Calls: 1, Ticks: 9000}, VDSO["time"]: {Calls: 7}, wire.CallRows - 1: {Calls: 2, Errors: 2, Ticks: 10}}
	b := Counts{0: {Calls: 1, Ticks: 1000}, 9: {}}
	both := Counts{}
	both.AddAll(a)
	both.AddAll(b)
	p.Processes = []Process{{PID: 10, Exe: "/bin/prog", Counts: both, Threads: []Thread{{1, 10, a, nil}, {2, 11, b, nil}}}, {PID: 12, Exe: "/bin/child", Counts: b, Threads: []Thread{}}}
	return p
}

func TestTables(t *testing.T) {
	p := profileForTest()
	p.Finish(1e9, ByTime)
	var b strings.Builder
	if err := p.WriteText(&b, Total); err != nil {
		t.Fatal(err)
	}
	want := `% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 64.24    0.000009         9.0         1           write
 35.69    0.000005         1.0         5         1 read
  0.07    0.000000         0.0         2         2 (other numbers)
                                       7           time (vdso)
------ ----------- ----------- --------- --------- ----------------
100.00    0.000014                    15         3 total
not counted: something
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	for by, want := range map[Order]string{ByTime: "write read (other numbers) time", ByCalls: "time read (other numbers) write", ByErrors: "(other numbers) read time write",
		ByName: "(other numbers) read time write"} {
		p.Finish(1e9, by)
		var names []string
		for _, r := range p.Calls {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
	b.Reset()
	p.WriteText(&b, PerThread)
	for _, want := range []string{"process 10 /bin/prog, thread T1 (tid=10)\n", "process 12 /bin/child\n", "all processes\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("by thread: no %q in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := p.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Profile
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil {
		t.Fatal(err)
	}
	if back.Version != 1 || len(back.Processes) != 2 || len(back.Processes[0].Threads) != 2 || back.Processes[0].Threads[0].Calls[1].Time != 3*time.Microsecond {
		t.Errorf("%+v", back)
	}
}
