package unwind

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/wire"
)

// assemble builds a shared object of assembly text and returns its image.
func assemble(t *testing.T, text string, flags ...string) *image.Image {
	t.Helper()
	dir := t.TempDir()
	src, so := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.so")
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", append(flags, "-shared", "-nostdlib", "-o", so, src)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc is needed: %v\n%s", err, out)
	}
	img, err := image.Open(so)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(img.Close)
	return img
}

func compile(t *testing.T, img *image.Image) (*Table, Stats) {
	t.Helper()
	b, st, err := Compile(img)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return tab, st
}

// Proves: each kind of expression and of register rule becomes the rule that layout.go describes; what cannot be expressed has no rule
// and is counted; code without frame information has none.
func TestRules(t *testing.T) {
	cfa := func(k wire.CFA, off int32) wire.UnwindRule { return wire.UnwindRule{CFA: uint8(k), CFAOff: off} }
	with := func(r wire.UnwindRule, f func(*wire.UnwindRule)) wire.UnwindRule { f(&r); return r }
	cases := []struct {
		name, cfi string
		want      wire.UnwindRule
		bad       bool
	}{
		{"start", "", cfa(wire.CFARsp, 8), false},
		{"rsp", ".cfi_def_cfa_offset 4096", cfa(wire.CFARsp, 4096), false},
		{"rbp", ".cfi_def_cfa rbp, 16\n.cfi_offset rbp, -16", with(cfa(wire.CFARbp, 16), func(r *wire.UnwindRule) { r.RBP, r.RBPOff = uint8(wire.RBPRuleCfa), -16 }), false},
		{"r10", ".cfi_def_cfa r10, 0", with(cfa(wire.CFAReg, 0), func(r *wire.UnwindRule) { r.Reg = 10 }), false},
		{"rbx", ".cfi_def_cfa rbx, 24\n.cfi_offset rbx, -24", with(cfa(wire.CFAReg, 24), func(r *wire.UnwindRule) { r.Reg, r.RBX, r.RBXOff = 3, 1, -24 }), false},
		// gcc, realigned: *(rbp-8), rbp saved at (rbp)
		{"deref rbp", ".cfi_escape 0x0f, 3, 0x76, 0x78, 0x06\n.cfi_escape 0x10, 6, 2, 0x76, 0",
			with(cfa(wire.CFADerefRbp, -8), func(r *wire.UnwindRule) { r.RBP = uint8(wire.RBPRuleAtRbp) }), false},
		// OpenSSL: *(rsp+152)+8
		{"deref rsp", ".cfi_escape 0x0f, 6, 0x77, 0x98, 0x01, 0x06, 0x23, 8", with(cfa(wire.CFADerefRsp, 152), func(r *wire.UnwindRule) { r.Reg = 8 }), false},
		{"deref rsp, lit", ".cfi_escape 0x0f, 5, 0x77, 0, 0x06, 0x38, 0x22", with(cfa(wire.CFADerefRsp, 0), func(r *wire.UnwindRule) { r.Reg = 8 }), false},
		{"plt", ".cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22", with(cfa(wire.CFAPlt, 8), func(r *wire.UnwindRule) { r.Reg = 11 }), false},
		{"expression rsp+48", ".cfi_escape 0x0f, 2, 0x77, 48", cfa(wire.CFARsp, 48), false},
		{"rbp by rsp", ".cfi_def_cfa_offset 32\n.cfi_escape 0x10, 6, 2, 0x77, 8", with(cfa(wire.CFARsp, 32), func(r *wire.UnwindRule) { r.RBP, r.RBPOff = uint8(wire.RBPRuleCfa), -24 }), false},
		{"rbp in a register", ".cfi_register rbp, rax", with(cfa(wire.CFARsp, 8), func(r *wire.UnwindRule) { r.RBP = uint8(wire.RBPRuleUndef) }), false},
		{"rbp same", ".cfi_offset rbp, -16\n.cfi_same_value rbp", cfa(wire.CFARsp, 8), false},
		{"rbx lost", ".cfi_undefined rbx", with(cfa(wire.CFARsp, 8), func(r *wire.UnwindRule) { r.RBX = 2 }), false},
		{"no caller", ".cfi_undefined rip", wire.UnwindRule{CFA: uint8(wire.CFAUndef), RBP: uint8(wire.RBPRuleUndef), RBX: 2}, false},
		{"remembered", ".cfi_remember_state\n.cfi_def_cfa_offset 80\n.cfi_restore_state", cfa(wire.CFARsp, 8), false},
		{"return address in a register", ".cfi_register rip, rdi", none, true},
		{"return address elsewhere", ".cfi_offset rip, -16", none, true},
		{"unknown expression", ".cfi_escape 0x0f, 4, 0x77, 8, 0x06, 0x06", none, true},
		{"unknown instruction", ".cfi_escape 0x3f", none, true},
		{"signal frame", ".cfi_signal_frame", none, true},
		{"glibc's signal frame", ".cfi_signal_frame\n.cfi_escape 0x0f, 4, 0x77, 0xa0, 1, 6\n.cfi_escape 0x10, 16, 3, 0x77, 0xa8, 1\n" +
			".cfi_escape 0x10, 7, 3, 0x77, 0xa0, 1\n.cfi_escape 0x10, 6, 3, 0x77, 0xf8, 0\n.cfi_escape 0x10, 3, 3, 0x77, 0x80, 1", cfa(wire.CFASigframe, 0), false},
	}
	for _, c := range cases {
		// f has the instructions at once; behind it g has no frame information, h has it again.
		img := assemble(t, ".text\n.globl f, g, h\n.type f,@function\nf:\n.cfi_startproc\n"+strings.ReplaceAll(strings.ReplaceAll(c.cfi, "cfi_def_cfa r", "cfi_def_cfa %r"), ", r", ", %r")+
			"\n.skip 32\n.cfi_endproc\n.size f,.-f\n.type g,@function\ng: .skip 16\n.size g,.-g\n.type h,@function\nh:\n.cfi_startproc\nnop\n.cfi_endproc\n.size h,.-h\n")
		tab, st := compile(t, img)
		f, g, h := addrOf(t, img, "f"), addrOf(t, img, "g"), addrOf(t, img, "h")
		for _, pc := range []uint64{f, f + 31} {
			if got := tab.Lookup(pc); got != c.want {
				t.Errorf("%s: at +%d %+v, expected %+v", c.name, pc-f, got, c.want)
			}
		}
		if c.bad != (st.Inexpress > 0) {
			t.Errorf("%s: %+v", c.name, st)
		}
		for _, pc := range []uint64{0, f - 1, g, g + 15, h + 1, f + 1<<33, ^uint64(0)} {
			if got := tab.Lookup(pc); got != none {
				t.Errorf("%s: %+v at %#x, where there is no code", c.name, got, pc)
			}
		}
		if got := tab.Lookup(h); got != cfa(wire.CFARsp, 8) {
			t.Errorf("%s: h has %+v", c.name, got)
		}
		if st.FDEs != 2 {
			t.Errorf("%s: %+v", c.name, st)
		}
	}
}

func addrOf(t *testing.T, img *image.Image, name string) uint64 {
	t.Helper()
	for _, s := range img.Segments() {
		for a := s.Addr; a < s.Addr+s.Size; a++ {
			if y, ok := img.Symbol(a); ok && y.Name == name {
				return y.Addr
			}
		}
	}
	t.Fatalf("no symbol %s", name)
	return 0
}

// Proves: without section headers the table is found through PT_GNU_EH_FRAME and is the same.
func TestStrippedSections(t *testing.T) {
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib64/ld-linux-x86-64.so.2"} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := image.FromMemory(path, b)
		if err != nil {
			t.Fatal(err)
		}
		want, st, err := Compile(whole)
		if err != nil {
			t.Fatal(err)
		}
		bare := bytes.Clone(b)
		clear(bare[40:48])
		clear(bare[60:64])
		img, err := image.FromMemory(path, bare)
		if err != nil {
			t.Fatal(err)
		}
		got, st2, err := Compile(img)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, %+v, expected %+v", path, err, st2, st)
		}
	}
}

// Proves: damage in one entry leaves the others; a section that is nothing but rubbish is an error or empty, and says how much is bad.
func TestDamagedEntries(t *testing.T) {
	const path = "/lib/x86_64-linux-gnu/libgcc_s.so.1"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.FromMemory(path, b)
	if err != nil {
		t.Fatal(err)
	}
	_, good := compile(t, img)
	d, _, _ := img.Section(".eh_frame")
	at := bytes.Index(b, d)
	if at < 0 || len(d) < 200 {
		t.Fatal("no .eh_frame")
	}
	damaged := bytes.Clone(b)
	// The second entry is an FDE: it names a CIE that is none.
	n := int(d[0]) + 4
	damaged[at+n+4]++
	img2, err := image.FromMemory(path, damaged)
	if err != nil {
		t.Fatal(err)
	}
	if _, st := compile(t, img2); st.FDEs != good.FDEs-1 || st.BadFDEs != 1 {
		t.Errorf("%+v, without damage %+v", st, good)
	}
	for i := range d {
		damaged[at+i] = 0x55
	}
	if img2, err = image.FromMemory(path, damaged); err != nil {
		t.Fatal(err)
	}
	if b, st, err := Compile(img2); err == nil && (st.FDEs != 0 || st.BadFDEs == 0) {
		t.Errorf("rubbish: %d bytes, %+v", len(b), st)
	}
}

// Proves: an image without frame information gives a table that knows nothing.
func TestNoFrames(t *testing.T) {
	tab, st := compile(t, assemble(t, ".text\n.globl f\nf: ret\n"))
	if len(tab.Rows) != 0 || len(tab.Rules) != 1 || st != (Stats{Rules: 1}) {
		t.Errorf("%+v %+v", tab, st)
	}
}

// Proves: damaged tables are refused.
func TestDecodeErrors(t *testing.T) {
	img := assemble(t, ".text\nf:\n.cfi_startproc\nnop\n.cfi_def_cfa_offset 16\nnop\n.cfi_endproc\n")
	good, _, err := Compile(img)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(b []byte) []byte{
		"empty":          func(b []byte) []byte { return nil },
		"short":          func(b []byte) []byte { return b[:len(b)-1] },
		"long":           func(b []byte) []byte { return append(b, 0) },
		"magic":          func(b []byte) []byte { b[0]++; return b },
		"version":        func(b []byte) []byte { b[8]++; return b },
		"no rules":       func(b []byte) []byte { b[12] = 0; return b },
		"many rows":      func(b []byte) []byte { b[19] = 0xff; return b },
		"rule 0":         func(b []byte) []byte { b[64] = 1; return b },
		"unknown CFA":    func(b []byte) []byte { b[64+16] = 99; return b },
		"unknown rule":   func(b []byte) []byte { b[len(b)-1] = 1; return b },
		"rows unordered": func(b []byte) []byte { b[len(b)-8], b[len(b)-16] = b[len(b)-16], b[len(b)-8]; return b },
	} {
		if _, err := Decode(f(bytes.Clone(good))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Decode(good); err != nil {
		t.Error(err)
	}
}
