package x86

import (
	"debug/elf"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"
)

// A tally gathers what differs, by kind, with an example each.
type tally struct {
	compared, refused int
	disputed          int  // taken by objdump and, rightly, not by us: lengths that depend on the maker, prefixes that fault
	lenient           bool // refusals count only in the soak run, and if no instruction of that operation is taken: objdump takes encodings that the processor does not
	taken             map[string]bool
	kinds             map[string]int
	example           map[string]string
}

func (t *tally) add(kind, example string) {
	if t.kinds == nil {
		t.kinds, t.example = map[string]int{}, map[string]string{}
	}
	t.kinds[kind]++
	if t.example[kind] == "" {
		t.example[kind] = example
	}
}

func (t *tally) report(tb testing.TB, name string) {
	var kinds []string
	for k := range t.kinds {
		if op, ok := strings.CutPrefix(k, "refused "); ok && t.lenient && (t.taken[op] || unknown.MatchString(op) || !soak) {
			continue
		}
		kinds = append(kinds, k)
	}
	sort.Slice(kinds, func(i, j int) bool { return t.kinds[kinds[i]] > t.kinds[kinds[j]] })
	for i, k := range kinds {
		if i >= 60 {
			tb.Errorf("%s: and %d more kinds", name, len(kinds)-i)
			break
		}
		tb.Errorf("%s: %d × %s: %s", name, t.kinds[k], k, t.example[k])
	}
	tb.Logf("%s: %d instructions compared, %d that neither side takes, %d that only objdump takes", name, t.compared, t.refused, t.disputed)
}

// soak asks for all that takes longer than a test should.
var soak = os.Getenv("RIPSTOP_SOAK") != ""

// unknown are the operations that the package says it does not know: AMX.
var unknown = regexp.MustCompile(`^(ldtilecfg|sttilecfg|tile.*|tdp.*)$`)

// judge compares our decoding of code, at pc, with objdump's text and length.
func (t *tally) judge(code []byte, pc uint64, n int, text string) {
	want, prefixes, ok := fromList(text)
	in, err := Decode(code)
	show := func() string {
		return fmt.Sprintf("% x | %s | ours: %v %v", code[:min(n, len(code))], text, in, err)
	}
	word := want.op
	if err == nil && in.Op == "fwait" && ok && want.op != "fwait" && n > in.Len { // objdump shows fwait and a no-wait instruction as one
		if s, fn := strings.CutPrefix(text, "f"); fn {
			for _, op := range []string{"stenv", "stcw", "stsw", "save", "clex", "init", "eni", "disi", "setpm"} {
				if strings.HasPrefix(s, op) {
					text = "fn" + s
				}
			}
		}
		t.judge(code[in.Len:], pc+uint64(in.Len), n-in.Len, text)
		return
	}
	switch {
	case ok && want.op == "": // prefixes alone: objdump shows them so before what it takes for no instruction, or as superfluous
		t.refused++
		return
	case !ok:
		t.refused++
		return
	case err == ErrVendor:
		t.disputed++
		return
	case err != nil:
		for _, p := range prefixes {
			// A lock on what may not be locked; a REX, 66, f2, f3 or lock before VEX: the processor refuses, objdump does not mind.
			if p == "lock" || word[0] == 'v' || word[0] == 'k' {
				t.disputed++
				return
			}
		}
		t.add("refused "+word, show())
		return
	}
	t.compared++
	if t.taken == nil {
		t.taken = map[string]bool{}
	}
	t.taken[word] = true
	if in.Len != n {
		t.add("length "+word, show())
		return
	}
	got := fromInst(&in, pc)
	if d := differ(&in, got, want); d != "" {
		t.add(strings.Fields(d)[0]+" "+word, d+" | "+show())
	}
}

// text gives the executable section that holds most of a file's code.
func text(tb testing.TB, file string) (data []byte, addr uint64) {
	tb.Helper()
	f, err := elf.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".text")
	if s == nil {
		tb.Fatalf("%s has no .text", file)
	}
	if data, err = s.Data(); err != nil {
		tb.Fatal(err)
	}
	return data, s.Addr
}

// compare compares all instructions of a file between two addresses.
func (t *tally) compare(tb testing.TB, file string, from, to uint64) {
	tb.Helper()
	data, addr := text(tb, file)
	from, to = max(from, addr), min(to, addr+uint64(len(data)))
	var last listed
	judge := func(end uint64) {
		if last.text != "" {
			o := last.addr - addr
			t.judge(data[o:min(o+MaxLen, uint64(len(data)))], last.addr, int(end-last.addr), last.text)
		}
	}
	list(tb, func(l listed) {
		judge(l.addr)
		last = l
	}, "-z", "-d", "-j", ".text", fmt.Sprintf("--start-address=%#x", from), fmt.Sprintf("--stop-address=%#x", to), file)
	judge(to)
}

const libs = "/usr/lib/x86_64-linux-gnu/"

// Every instruction of libc is decoded as objdump decodes it: same length, same operation, same operands.
func TestLibc(t *testing.T) {
	var all tally
	all.compare(t, libs+"libc.so.6", 0, 1<<63)
	all.report(t, "libc")
}

// So are 200,000 instructions in pieces from all over the other libraries, and with RIPSTOP_SOAK=1 all of theirs and of mariadbd.
func TestLibraries(t *testing.T) {
	files := []string{libs + "libstdc++.so.6", libs + "libcrypto.so.3", "/usr/bin/python3"}
	if soak {
		files = append(files, "/usr/sbin/mariadbd")
	}
	compared := 0
	for _, file := range files {
		var all tally
		if soak {
			all.compare(t, file, 0, 1<<63)
		} else {
			data, addr := text(t, file)
			const pieces, size = 8, 40000
			step := max(uint64(len(data))/pieces, size)
			for at := uint64(0); at < uint64(len(data)); at += step {
				all.compare(t, file, addr+at, addr+at+size)
			}
		}
		all.report(t, file)
		compared += all.compared
	}
	if compared < 200000 {
		t.Errorf("only %d instructions compared", compared)
	}
}

// A slot of synthetic code: an instruction and fillings, so long that whatever objdump makes of the filling, it is back in step at the end.
const slotLen = 32

// legacy gives an instruction of each opcode, prefix, ModRM.reg and kind of ModRM.rm.
func legacy(each func([]byte)) {
	for opmap, escape := range [][]byte{{}, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}} {
		for op := range 256 {
			if opmap == 0 && (op == 0x0f || op&0xf0 == 0x40 || strings.IndexByte("\x26\x2e\x36\x3e\x62\x64\x65\x66\x67\xc4\xc5\xf0\xf2\xf3", byte(op)) >= 0) || opmap == 1 && (op == 0x38 || op == 0x3a) {
				continue
			}
			for _, prefix := range [][]byte{{}, {0x66}, {0xf3}, {0xf2}, {0x66, 0xf2}, {0x67}, {0x65}, {0xf0}} {
				for _, rex := range [][]byte{{}, {0x48}, {0x4f}, {0x41}} {
					for reg := range 8 {
						for _, rm := range []byte{0xc1, 0xc4, 0x41, 0x05, 0x84, 0x44} {
							if opmap == 0 && op == 0x8f && reg != 0 {
								continue
							}
							c := append(append(append(append(append([]byte{}, prefix...), rex...), escape...), byte(op)), rm|byte(reg)<<3)
							each(append(c, 0xcd, 0x21, 0x43, 0x65, 0x07, 0x11))
						}
					}
				}
			}
		}
	}
}

// vectors gives an instruction of each VEX and EVEX opcode, prefix, W, length, and kinds of operands.
func vectors(each func([]byte)) {
	for opmap := 1; opmap <= 3; opmap++ {
		for op := range 256 {
			for pp := range 4 {
				for w := range 2 {
					for l := range 3 {
						for _, rm := range []byte{0xc1, 0x41, 0x44, 0x05, 0xd3, 0xe6, 0x55, 0x65, 0x75, 0x4d, 0xfc, 0xf8} {
							tail := []byte{byte(op), rm, 0xcd, 0x21, 0x43, 0x65}
							if opmap <= 3 && l < 2 {
								for _, r := range []byte{0xe0, 0x00, 0x80} {
									for _, v := range []byte{15, 5} {
										each(append([]byte{0xc4, r | byte(opmap), byte(w<<7|l<<2|pp) | v<<3}, tail...))
									}
								}
							}
							for _, r := range []byte{0xf0, 0x90, 0x60} {
								for _, p3 := range []byte{0x08, 0x09, 0x18, 0x8a, 0x00, 0x1b} {
									each(append([]byte{0x62, r | byte(opmap), byte(w<<7|pp) | 0x7c, p3 | byte(l)<<5}, tail...))
								}
							}
						}
					}
				}
			}
		}
	}
}

// synthetic compares one of every n generated instructions, chosen by a hash of its bytes.
func (t *tally) synthetic(tb testing.TB, generate func(func([]byte)), n uint32) {
	tb.Helper()
	file, err := os.CreateTemp(tb.TempDir(), "code")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	var code []byte
	generate(func(c []byte) {
		h := uint32(2166136261)
		for _, b := range c {
			h = (h ^ uint32(b)) * 16777619
		}
		if (h^h>>15)%n != 0 {
			return
		}
		slot := [slotLen]byte{}
		for i := copy(slot[:], c); i < slotLen; i++ {
			slot[i] = 0x90
		}
		code = append(code, slot[:]...)
	})
	if _, err := file.Write(code); err != nil {
		tb.Fatal(err)
	}
	var last listed
	list(tb, func(l listed) {
		if last.text != "" && last.addr%slotLen == 0 {
			t.judge(code[last.addr:min(last.addr+MaxLen, uint64(len(code)))], last.addr, int(l.addr-last.addr), last.text)
		}
		last = l
	}, "-z", "-D", "-b", "binary", "-m", "i386:x86-64", file.Name())
}

// Instructions of every opcode, prefix, operand form and vector length that objdump knows are decoded as objdump decodes them, those that no
// library here contains too. One in 200 of them; with RIPSTOP_SOAK=1 one in 5.
func TestEveryOpcode(t *testing.T) {
	n := uint32(200)
	if soak {
		n = 5
	}
	old, vec := tally{lenient: true}, tally{lenient: true}
	old.synthetic(t, legacy, n)
	old.report(t, "legacy")
	vec.synthetic(t, vectors, n)
	vec.report(t, "vectors")
	if old.compared < 1000 || vec.compared < 1000 {
		t.Errorf("only %d and %d instructions compared", old.compared, vec.compared)
	}
}
