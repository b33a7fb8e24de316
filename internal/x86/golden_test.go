package x86

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/facts.txt anew; then read every changed line")

// setText names the members of a set.
func setText(s RegSet) string {
	var names []string
	units := []struct {
		set  RegSet
		name string
	}{{SetX87, "x87"}, {SetMXCSR, "mxcsr"}, {SetSeg, "seg"}, {SetPKRU, "pkru"}, {SetSSP, "ssp"}, {SetSys, "sys"}}
	for r := RAX; r < RAX+16; r++ {
		if s.Has(r) {
			names = append(names, r.String())
		}
	}
	vec := func(from, n int, name string) bool {
		m := RegSet(1<<n-1) << (16 + from)
		if s&m == m {
			names = append(names, name)
			s &^= m
			return true
		}
		return false
	}
	if !vec(0, 32, "vec0-31") {
		vec(0, 16, "vec0-15")
	}
	for i := range 32 {
		vec(i, 1, fmt.Sprint("vec", i))
	}
	if s&SetMask == SetMask {
		names = append(names, "k0-7")
	} else {
		for r := K0; r < K0+8; r++ {
			if s.Has(r) {
				names = append(names, r.String())
			}
		}
	}
	for _, u := range units {
		if s&u.set != 0 {
			names = append(names, u.name)
		}
	}
	return strings.Join(names, ",")
}

func flagText(f Flags) (s string) {
	for _, l := range []struct {
		f Flags
		c string
	}{{OF, "o"}, {SF, "s"}, {ZF, "z"}, {AF, "a"}, {PF, "p"}, {CF, "c"}, {DF, "d"}, {IF, "i"}, {TF, "t"}, {AC, "l"}} {
		if f&l.f != 0 {
			s += l.c
		}
	}
	return s
}

var flowText = []string{"", "jump", "cond", "loop", "call", "ret", "indirect jump", "indirect call", "far", "syscall", "trap", "halt", "transaction"}
var kindText = []string{"locked", "string", "stack", "gather", "scatter", "masked", "nontemporal", "broadcast", "bit", "state", "hint", "address", "es"}

// factsText writes down all facts of an instruction in one line.
func factsText(in *Inst) string {
	var parts []string
	add := func(name, s string) {
		if s != "" {
			parts = append(parts, name+" "+s)
		}
	}
	add("reads", setText(in.Reads))
	add("writes", setText(in.Writes))
	add("kept", setText(in.Kept))
	add("flags-read", flagText(in.FlagsRead))
	add("flags-written", flagText(in.FlagsWritten))
	add("flags-kept", flagText(in.FlagsKept))
	add("flags-undefined", flagText(in.FlagsUndefined))
	for _, m := range in.Mems() {
		s := fmt.Sprintf("%s %s %d", m.text(), []string{"none", "read", "write", "readwrite"}[m.Access], m.Size)
		if m.Bias != 0 {
			s += fmt.Sprintf(" bias %d", m.Bias)
		}
		for i, k := range kindText {
			if m.Kind&(1<<i) != 0 {
				s += " " + k
			}
		}
		add("mem", s)
	}
	add("flow", flowText[in.Flow])
	if in.DispLen > 0 {
		add("disp", fmt.Sprintf("%d+%d", in.DispOff, in.DispLen))
	}
	if in.ImmLen > 0 {
		add("imm", fmt.Sprintf("%d+%d", in.ImmOff, in.ImmLen))
	}
	return strings.Join(parts, "; ")
}

// The facts of an instruction of each kind, corner cases among them, are those written down in testdata/facts.txt: hex | length | text |
// facts. They were read through by a person; TestFactsAgainstProcessor holds them against the machine.
func TestFacts(t *testing.T) {
	const name = "testdata/facts.txt"
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	lines := 0
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		line := s.Text()
		if line == "" || line[0] == '#' {
			fmt.Fprintln(&out, line)
			continue
		}
		field, _, _ := strings.Cut(line, " | ")
		code, err := hex.DecodeString(strings.ReplaceAll(field, " ", ""))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		in, err := Decode(code)
		got := fmt.Sprintf("%s | %d | %s | %s", field, in.Len, in, factsText(&in))
		if err != nil {
			got = fmt.Sprintf("%s | %v", field, err)
		}
		got = strings.TrimRight(got, " ")
		fmt.Fprintln(&out, got)
		lines++
		if got != line && !*update {
			t.Errorf("got  %s\nwant %s", got, line)
		}
	}
	if lines < 100 {
		t.Errorf("only %d lines in %s", lines, name)
	}
	if *update {
		if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Decoding any bytes gives an instruction or an error and never panics; an instruction is no longer than its bytes or 15, its parts lie
// within it in order, and the bytes behind it do not matter.
func FuzzDecode(f *testing.F) {
	data, err := os.ReadFile("testdata/facts.txt")
	if err != nil {
		f.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		field, _, _ := strings.Cut(s.Text(), " | ")
		if code, err := hex.DecodeString(strings.ReplaceAll(field, " ", "")); err == nil {
			f.Add(code)
		}
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		in, err := Decode(code)
		if err != nil {
			if err != ErrTruncated && err != ErrInvalid && err != ErrVendor {
				t.Fatalf("% x: error %v", code, err)
			}
			if err == ErrTruncated && len(code) >= MaxLen {
				t.Fatalf("% x: truncated, and no bytes could be added", code)
			}
			return
		}
		if in.Len < 1 || in.Len > len(code) || in.Len > MaxLen || int(in.DispOff+in.DispLen) > in.Len || int(in.ImmOff+in.ImmLen) > in.Len ||
			in.DispLen > 0 && in.DispOff <= in.OpcodeOff || in.ImmLen > 0 && in.ImmOff < in.DispOff+in.DispLen || int(in.OpcodeOff) >= in.Len {
			t.Fatalf("% x: %+v", code, in)
		}
		if in.Kept&^in.Writes != 0 || in.FlagsKept&^in.FlagsWritten != 0 {
			t.Fatalf("% x: kept and not written: %+v", code, in)
		}
		again, err := Decode(code[:in.Len])
		if err != nil || in.String() != again.String() || factsText(&in) != factsText(&again) {
			t.Fatalf("% x: %v, but its own bytes alone: %v %v", code, in, again, err)
		}
		if _, err := Decode(code[:in.Len-1]); err != ErrTruncated && err == nil {
			short, _ := Decode(code[:in.Len-1])
			t.Fatalf("% x: %v, and without its last byte %v", code, in, short)
		}
	})
}

// The cost of decoding code as it comes, libc's.
func BenchmarkDecode(b *testing.B) {
	data, _ := text(b, libs+"libc.so.6")
	b.ReportAllocs()
	at := 0
	for b.Loop() {
		in, err := Decode(data[at:])
		if at += in.Len; err != nil {
			at++
		}
		if at > len(data)-MaxLen {
			at = 0
		}
	}
}

// Decoding allocates nothing, but for large immediates that x86asm boxes.
func TestDecodeAllocates(t *testing.T) {
	data, _ := text(t, libs+"libc.so.6")
	data = data[:100000]
	n := 0
	allocs := testing.AllocsPerRun(1, func() {
		n = 0
		for at := 0; at < len(data)-MaxLen; n++ {
			in, err := Decode(data[at:])
			if at += in.Len; err != nil {
				at++
			}
		}
	})
	if allocs > float64(n)/100 {
		t.Errorf("%v allocations for %d instructions", allocs, n)
	}
}
