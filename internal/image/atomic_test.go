package image

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestIsAtomicStore(t *testing.T) {
	for name, want := range map[string]bool{
		"_ZNSt13__atomic_baseImE5storeEmSt12memory_order":                                                    true,
		"_ZNVSt6atomicIbE5storeEbSt12memory_order":                                                           true,
		"_ZNSt6atomicIP4NodeE5storeES1_St12memory_order":                                                     true,
		"_ZNSt13__atomic_baseIPN3foo3BarIiS1_EEE5storeES4_St12memory_order":                                  true,
		"_ZNSt6atomicIbEaSEb":                                                                                true,
		"_ZNSt11atomic_flag5clearESt12memory_order":                                                          true,
		"_ZNSt3__118__cxx_atomic_storeB8ne180100IiEEvPNS_22__cxx_atomic_base_implIT_EES2_NS_12memory_orderE": true,
		"_ZNSt3__113__atomic_baseIiLb0EE5storeEiNS_12memory_orderE":                                          true,
		"_ZN4core4sync6atomic12atomic_store17h0123456789abcdefE":                                             true,
		"_RINvNtNtCs1_4core4sync6atomic12atomic_storejE":                                                     true,
		"_ZNKSt13__atomic_baseIiE4loadESt12memory_order":                                                     false,
		"_ZNSt11atomic_flag12test_and_setESt12memory_order":                                                  false,
		"_ZNSt13__atomic_baseIiE9fetch_addEiSt12memory_order":                                                false,
		"_ZNSt6atomicIN4load5storeEE8exchangeES1_St12memory_order":                                           false,
		"_ZN4core4sync6atomic10atomic_add17h0123456789abcdefE":                                               false,
		"_ZN4core4sync6atomic11AtomicUsize5store17h0123456789abcdefE":                                        false, // calls atomic_store
		"_ZN3foo6atomicIiE5storeEv":                                                                          false,
		"store":                                                                                              false, "": false, "_ZN": false, "_ZNSt6atomicI": false, "_ZNSt6atomicI9": false, "_ZNSt6atomicIS": false, "_ZNSt6atomicI99999999999999999999E": false,
	} {
		if got := isAtomicStore(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What a compiler makes of them is found at each level of optimisation, and is where the accesses are.
func TestAtomicStores(t *testing.T) {
	const text = `#include <atomic>
std::atomic<int> a; std::atomic<int *> p; std::atomic<bool> b; int plain;
int *where() { return p.load(std::memory_order_acquire); }
void set(int x) { plain = x; a.store(x, std::memory_order_relaxed); b = true; }
int main() { set(1); return where() != nullptr || a.fetch_add(1) == 7 || !b; }
`
	dir := t.TempDir()
	source := filepath.Join(dir, "a.cc")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"-O0", "-O1", "-O2"} {
		exe := filepath.Join(dir, "a"+level)
		if out, err := exec.Command("g++", level, "-g", "-o", exe, source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		m, err := Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var functions []string
		for _, r := range m.AtomicStores() {
			for at := r.Lo; at < r.Hi; at++ {
				if f := m.Frames(at); len(f) > 0 && (len(functions) == 0 || functions[len(functions)-1] != f[0].Func) {
					functions = append(functions, f[0].Func)
				}
			}
		}
		all := strings.Join(functions, " ")
		if !strings.Contains(all, "store") {
			t.Errorf("%s: only %s", level, all)
		}
		for _, wrong := range []string{"set", "where", "main", "load", "fetch_add"} {
			for _, f := range functions {
				if f == wrong || strings.HasPrefix(f, wrong+"(") || strings.Contains(f, "::"+wrong) {
					t.Errorf("%s: %s is told as an atomic's", level, f)
				}
			}
		}
	}
}

// Which compiler made the code, and whether a unit would name its stores to atomics: with line tables alone it has no names.
func TestFoldsAtomics(t *testing.T) {
	const text = `#include <atomic>
extern "C" { std::atomic<long> a; long plain; void raise() { a.store(a.load(std::memory_order_relaxed) + 1, std::memory_order_release); plain++; } }
int main() { raise(); return 0; }
`
	dir := t.TempDir()
	source := filepath.Join(dir, "a.cc")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, k := range []struct {
		by           []string
		folds, names bool
	}{
		{[]string{"g++", "-g"}, false, true},
		{[]string{"g++"}, false, false},
		{[]string{"clang++", "-g"}, true, true},
		{[]string{"clang++", "-gline-tables-only"}, true, false},
		{[]string{"clang++", "-fuse-ld=bfd"}, true, false},
		{[]string{"g++", "-g", "strip"}, true, false},
	} {
		exe := filepath.Join(dir, fmt.Sprint("a", i))
		flags, strip := k.by[1:], false
		if n := len(flags); n > 0 && flags[n-1] == "strip" {
			flags, strip = flags[:n-1], true
		}
		if out, err := exec.Command(k.by[0], append([]string{"-O2", "-o", exe, source}, flags...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		m, err := Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		raise := uint64(0)
		f, err := elf.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		symbols, _ := f.Symbols()
		for _, s := range symbols {
			if s.Name == "raise" {
				raise = s.Value
			}
		}
		f.Close()
		if strip {
			if out, err := exec.Command("strip", "-R", ".comment", exe).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if m, err = Open(exe); err != nil {
				t.Fatal(err)
			}
			defer m.Close()
		}
		if got := m.FoldsAtomics(); got != k.folds {
			t.Errorf("%s: folds: %v", k.by, got)
		}
		if got := m.NamesAtomics(raise); got != k.names {
			t.Errorf("%s: names, at %#x: %v", k.by, raise, got)
		}
	}
}
