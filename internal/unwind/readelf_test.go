package unwind

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/wire"
)

// Proves: at every row that readelf prints of these objects' .eh_frame, the compiled table has the same CFA, the same place of rbp and
// of rbx, and stops where it must. Rows that the table cannot express are rarer than one in 10,000 (or two in a small object).
func TestTablesEqualReadelf(t *testing.T) {
	for _, path := range []string{
		"/lib/x86_64-linux-gnu/libc.so.6",
		"/lib64/ld-linux-x86-64.so.2",
		"/lib/x86_64-linux-gnu/libgcc_s.so.1",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
		"/usr/bin/python3.11",
		"/usr/sbin/mariadbd",
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if testing.Short() && !strings.Contains(path, "libgcc") {
				t.Skip("long")
			}
			img, err := image.Open(path)
			if err != nil {
				t.Fatalf("%v (script/deps test installs what is missing)", err)
			}
			defer img.Close()
			b, st, err := Compile(img)
			if err != nil {
				t.Fatal(err)
			}
			tab, err := Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			rows, unknown, elsewhere := compareReadelf(t, path, tab)
			t.Logf("%d bytes, %+v; %d rows of readelf compared, %d not expressed, return address elsewhere in %d", len(b), st, rows, unknown, elsewhere)
			if rows < 100 || st.FDEs == 0 {
				t.Errorf("only %d rows, %d FDEs", rows, st.FDEs)
			}
			if st.BadFDEs != 0 {
				t.Errorf("%d FDEs could not be read", st.BadFDEs)
			}
			if unknown > st.States/10000 || elsewhere > 10 || st.Inexpress < unknown+elsewhere {
				t.Errorf("%d and %d of %d rows cannot be expressed, %d say the statistics", unknown, elsewhere, st.States, st.Inexpress)
			}
		})
	}
}

var regName = regexp.MustCompile(` \([a-z0-9]+\)`)

var fdeLine = regexp.MustCompile(` FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)`)

// compareReadelf returns the number of rows compared, and of those for which the table has no rule: in general, and because the return
// address is in a register or in a buffer.
func compareReadelf(t *testing.T, path string, tab *Table) (rows, unknown, elsewhere int) {
	t.Helper()
	cmd := exec.Command("readelf", "--debug-dump=frames-interp", "--debug-dump=no-follow-links", path)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("readelf (binutils) is needed: %v", err)
	}
	var end uint64
	var cols []string
	inFDE, pending := false, []string(nil)
	var wrong int
	// A row holds from its address on; of several at one address the last.
	flush := func(next uint64) {
		if pending == nil {
			return
		}
		pc, err := strconv.ParseUint(pending[0], 16, 64)
		if err != nil {
			t.Fatalf("%s: %q", path, pending)
		}
		if next != pc && pc < end {
			rows++
			r := tab.Lookup(pc)
			if ra := pending[len(pending)-1]; r == none && ra != "c-8" {
				elsewhere++
			} else if r == none {
				unknown++
				t.Logf("no rule at %#x: %v %v", pc, cols, pending)
			} else if why := differs(r, cols, pending); why != "" {
				if wrong++; wrong < 20 {
					t.Errorf("%s at %#x: %s: rule %+v, readelf %v %v", path, pc, why, r, cols, pending)
				}
			}
			// The rule must hold up to the next row.
			if last := min(next, end) - 1; last > pc && tab.Lookup(last) != r {
				if wrong++; wrong < 20 {
					t.Errorf("%s: the rule at %#x no longer holds at %#x", path, pc, last)
				}
			}
		}
		pending = nil
	}
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		if m := fdeLine.FindStringSubmatch(line); m != nil {
			flush(^uint64(0))
			end, _ = strconv.ParseUint(m[2], 16, 64)
			inFDE, cols = true, nil
			continue
		}
		f := strings.Fields(regName.ReplaceAllString(line, ""))
		switch {
		case len(f) == 0:
			flush(^uint64(0))
			inFDE = false
		case strings.Contains(line, " CIE "):
			flush(^uint64(0))
			inFDE = false
		case inFDE && f[0] == "LOC":
			cols = f
		case inFDE && cols != nil:
			if len(f) != len(cols) {
				t.Fatalf("%s: cannot read %q under %v", path, line, cols)
			}
			pc, err := strconv.ParseUint(f[0], 16, 64)
			if err != nil {
				t.Fatalf("%s: cannot read %q", path, line)
			}
			flush(pc)
			pending = f
		}
	}
	flush(^uint64(0))
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return rows, unknown, elsewhere
}

var regNames = []string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}

// differs says in what a rule differs from readelf's row.
func differs(r wire.UnwindRule, cols, row []string) string {
	col := func(name string) string {
		for i, c := range cols {
			if c == name {
				return row[i]
			}
		}
		return "u"
	}
	cfa, ra := wire.CFA(r.CFA), col("ra")
	if ra == "u" {
		if cfa != wire.CFAUndef {
			return "the return address is undefined"
		}
		return ""
	}
	if ra == "exp" {
		if cfa != wire.CFASigframe {
			return "return address by an expression"
		}
		return ""
	}
	if ra != "c-8" {
		return "a return address elsewhere"
	}
	want := col("CFA")
	if want == "exp" {
		if cfa != wire.CFADerefRbp && cfa != wire.CFADerefRsp && cfa != wire.CFAPlt {
			return "the CFA is an expression"
		}
	} else {
		var have string
		switch cfa {
		case wire.CFARsp:
			have = "rsp"
		case wire.CFARbp:
			have = "rbp"
		case wire.CFAReg:
			have = regNames[r.Reg]
		}
		if r.CFAOff >= 0 {
			have += "+"
		}
		if have += strconv.Itoa(int(r.CFAOff)); have != want {
			return "CFA"
		}
	}
	saved := func(is string, kind, same, inCFA uint8, off int32) bool {
		switch {
		case is == "u" || is == "s":
			return kind == same
		case strings.HasPrefix(is, "c"):
			n, err := strconv.Atoi(is[1:])
			return err == nil && kind == inCFA && int(off) == n
		}
		return kind != same && kind != inCFA
	}
	if !saved(col("rbp"), r.RBP, uint8(wire.RBPRuleSame), uint8(wire.RBPRuleCfa), r.RBPOff) {
		return "rbp"
	}
	if !saved(col("rbx"), r.RBX, rbxSame, rbxSaved, r.RBXOff) {
		return "rbx"
	}
	return ""
}
