package hook

import (
	"debug/elf"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
)

// fileReader reads code as it lies in a file.
func fileReader(img *image.Image) *reader {
	return &reader{
		word: func(uint64) (uint64, bool) { return 0, false },
		read: img.Bytes,
		name: func(at uint64) string {
			if s, ok := img.Symbol(at); ok && s.Addr == at {
				return s.Name
			}
			return ""
		},
	}
}

// A Rust program's mutexes were nowhere in the log, as they are no libc's: of two epochs with six threads on one mutex one went another way. What they are is proved from their code, as compilers make it; what looks like one and does more,
// less or another thing (each written here) is left alone, since to take it for one would change what the program does.
func TestMade(t *testing.T) {
	for _, cc := range []string{"gcc", "clang"} {
		for _, flags := range []string{"-O1", "-O2", "-O3", "-Os", "-O2 -fcf-protection=full", "-O2 -fno-omit-frame-pointer", "-O2 -fPIE -pie"} {
			exe := filepath.Join(t.TempDir(), "made")
			args := append([]string{"-no-pie", "-o", exe, "testdata/made.c"}, strings.Fields(flags)...)
			if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %s", err, out)
			}
			img, err := image.Open(exe)
			if err != nil {
				t.Fatal(err)
			}
			look(t, cc+" "+flags, img)
			img.Close()
		}
	}
}

func look(t *testing.T, how string, img *image.Image) {
	r := fileReader(img)
	seen := map[string]int{}
	for _, f := range img.Functions() {
		s, ok := img.Symbol(f[0])
		kind, _, named := strings.Cut(s.Name, "_")
		if !ok || !named || strings.Contains(s.Name, ".") || kind != "takes" && kind != "gives" && kind != "both" && kind != "none" {
			continue
		}
		takes, gives := 0, 0
		for _, seg := range img.Segments() {
			if seg.Flags&elf.PF_X == 0 {
				continue
			}
			code := img.Bytes(seg.Addr, seg.FileSize)
			at := func(i int) (made, bool) {
				if a := seg.Addr + uint64(i); a >= f[0] && a < f[1] {
					return r.lock(f[0], a)
				}
				return made{}, false
			}
			eachTaking(code, func(i int) {
				if _, ok := at(i); ok {
					takes++
				}
			})
			eachGiving(code, func(i int) {
				if _, ok := at(i); ok {
					gives++
				}
			})
		}
		// Code may be there twice.
		if (takes > 0) != (kind == "takes" || kind == "both") || (gives > 0) != (kind == "gives" || kind == "both") {
			t.Errorf("%s: %s: %d take, %d give", how, s.Name, takes, gives)
		}
		seen[kind]++
	}
	if seen["both"] != 3 || seen["takes"] != 1 || seen["gives"] != 3 || seen["none"] != 20 {
		t.Errorf("%s: %v", how, seen)
	}
}

// Code may be anything: whatever a function comes to, it is read to an end.
func TestMadeOfAnything(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "made")
	if out, err := exec.Command("gcc", "-O2", "-no-pie", "-o", exe, "testdata/made.c").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	img, err := image.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	text, at, ok := img.Section(".text")
	if !ok {
		t.Fatal("no text")
	}
	places := func(code []byte) (n int) {
		r := fileReader(img)
		r.read = func(a, n uint64) []byte {
			if a < at || a >= at+uint64(len(code)) {
				return img.Bytes(a, n)
			}
			return code[a-at : min(a-at+n, uint64(len(code)))]
		}
		for _, f := range img.Functions() {
			each := func(i int) {
				if a := at + uint64(i); a >= f[0] && a < f[1] {
					if _, ok := r.lock(f[0], a); ok {
						n++
					}
				}
			}
			eachTaking(code, each)
			eachGiving(code, each)
		}
		return n
	}
	as := places(text)
	for range 300 {
		code := append([]byte(nil), text...)
		for range 1 + rand.IntN(40) {
			code[rand.IntN(len(code))] = byte(rand.Uint32())
		}
		places(code)
	}
	if as < 8 {
		t.Errorf("%d places", as)
	}
}
