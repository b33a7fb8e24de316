package image

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/finding"
)

func show(fs []finding.Frame) string {
	var b strings.Builder
	for _, f := range fs {
		fmt.Fprintf(&b, "%s %s:%d", f.Func, f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
		if f.Inlined {
			b.WriteString(" inlined")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Proves: for both compilers, DWARF 4 and 5, with and without optimisation, compressed or not, an address in a function inlined twice
// gives the three functions with their namespaces and parameters, and the right lines.
func TestInlinedFrames(t *testing.T) {
	for i, flags := range [][]string{
		{"g++", "-gdwarf-4", "-O0"}, {"g++", "-gdwarf-4", "-O2"}, {"g++", "-gdwarf-5", "-O0"}, {"g++", "-gdwarf-5", "-O2"},
		{"clang++", "-gdwarf-4", "-O0"}, {"clang++", "-gdwarf-4", "-O2"}, {"clang++", "-gdwarf-5", "-O0"}, {"clang++", "-gdwarf-5", "-O2"},
		{"g++", "-g", "-O2", "-gz=zlib"}, {"g++", "-g", "-O2", "-fdebug-types-section"}, {"g++", "-g", "-O2", "-flto"},
		{"g++", "-g", "-O2", "-gdwarf64"}, {"g++", "-g", "-O2", "-static"}, {"g++", "-g", "-O2", "-no-pie"},
		{"clang++", "-g", "-O2", "-ffunction-sections", "-Wl,--gc-sections"},
	} {
		t.Run(strings.Join(flags, ""), func(t *testing.T) {
			if testing.Short() && i%4 != 0 {
				t.Skip("long")
			}
			exe := build(t, "names", append(flags, "testdata/names.cc")...)
			got := mustOpen(t, exe).Frames(symbolAddr(t, exe, "mark_deep"))
			const transfer = "void bank::Account::transfer<int>(bank::Account&, int)"
			if len(got) != 3 {
				t.Fatalf("frames:\n%s", show(got))
			}
			// gcc gives static functions no linkage name, and so no parameters.
			for i, want := range []string{"bank::deep", "bank::mid"} {
				if got[i].Func != want && got[i].Func != want+"(int)" || !got[i].Inlined {
					t.Errorf("frame %d is %+v", i, got[i])
				}
			}
			if got[2].Func != transfer || got[2].Inlined || got[2].Symbol != "_ZN4bank7Account8transferIiEEvRS0_T_" {
				t.Errorf("frame 2 is %+v", got[2])
			}
			for i, want := range []int{12, 18, 30} {
				if got[i].Line != want || !strings.HasSuffix(got[i].File, "/testdata/names.cc") && got[i].File != "testdata/names.cc" {
					t.Errorf("frame %d is at %s:%d, expected line %d", i, got[i].File, got[i].Line, want)
				}
				if got[i].Column == 0 {
					t.Errorf("frame %d has no column", i)
				}
			}
		})
	}
}

// Proves: functions outside namespaces and lambdas have their names, C functions without decoration.
func TestPlainNames(t *testing.T) {
	exe := build(t, "names", "g++", "-g", "-O0", "testdata/names.cc")
	m := mustOpen(t, exe)
	for sym, want := range map[string]string{
		"plain_c":              "plain_c",
		"main":                 "main",
		"_ZZ4mainENKUliE_clEi": "main::{lambda(int)#1}::operator()(int) const",
	} {
		got := m.Frames(symbolAddr(t, exe, sym))
		if len(got) != 1 || got[0].Func != want {
			t.Errorf("%s: %+v", sym, got)
		}
	}
}

// Proves: with -gsplit-dwarf the function and line are still there, and that inlined calls are missing is said.
func TestSplitDwarfIsSaid(t *testing.T) {
	for _, d := range []string{"-gdwarf-4", "-gdwarf-5"} {
		exe := build(t, "names", "g++", "-g", d, "-O2", "-gsplit-dwarf", "testdata/names.cc")
		m := mustOpen(t, exe)
		got := m.Frames(symbolAddr(t, exe, "mark_deep"))
		if len(got) != 1 || got[0].Func != "void bank::Account::transfer<int>(bank::Account&, int)" || got[0].Line != 12 {
			t.Errorf("%s: %s", d, show(got))
		}
		if n := m.Notes(); len(n) != 1 || !strings.Contains(n[0], "gsplit-dwarf") {
			t.Errorf("%s: notes %q", d, n)
		}
	}
}

// Proves: Rust's mangling, legacy and v0, is undone, in symbols and in inlined calls.
func TestDemangle(t *testing.T) {
	for in, want := range map[string]string{
		"main":                                 "main",
		"_ZN4bank7Account8transferIiEEvRS0_T_": "void bank::Account::transfer<int>(bank::Account&, int)",
		"_ZNSt5mutex4lockEv@plt":               "std::mutex::lock()@plt",
		"_ZN3foo3bar17h0123456789abcdefE":      "foo::bar",
		"_RNvCs1234_7mycrate3foo":              "mycrate::foo",
		"_Z":                                   "_Z",
		"_Znot mangled":                        "_Znot mangled",
		"_ZN" + strings.Repeat("1a", 3000):     "_ZN" + strings.Repeat("1a", 3000),
	} {
		if got := Demangle(in); got != want {
			t.Errorf("%q: %q, expected %q", in, got, want)
		}
	}
}

// Proves: a Rust program's functions, generic and inlined, are named as its programmer knows them, with both manglings. Rust is no part
// of what the tests install: without rustc there is nothing to prove.
func TestRustFrames(t *testing.T) {
	rustc, err := exec.LookPath("rustc")
	if err != nil {
		t.Skip("rustc is not installed")
	}
	for _, flags := range [][]string{{"-O"}, {"-O", "-C", "symbol-mangling-version=v0"}, {"-C", "opt-level=0"}} {
		exe := build(t, "names", append([]string{rustc, "-g", "testdata/names.rs"}, flags...)...)
		got := mustOpen(t, exe).Frames(symbolAddr(t, exe, "mark_helper"))
		if len(got) != 2 {
			t.Fatalf("%v:\n%s", flags, show(got))
		}
		t.Logf("%v:\n%s", flags, show(got))
		if got[0].Func != "names::helper" || !got[0].Inlined || got[0].Line != 11 ||
			!strings.HasPrefix(got[1].Func, "names::Account::transfer") && !strings.HasPrefix(got[1].Func, "<names::Account>::transfer") || got[1].Line != 19 {
			t.Errorf("%v:\n%s", flags, show(got))
		}
	}
}
