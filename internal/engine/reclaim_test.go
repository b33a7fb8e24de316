package engine

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/patch"
)

// A finder finds each trampoline to any byte of which a value leads, and no other.
func TestFinder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var graves []grave
	for at := uint64(0x7f0000000000); len(graves) < 1000; at += r.Uint64N(3) * r.Uint64N(20000) {
		n := 1 + r.IntN(300)
		graves = append(graves, grave{at: at, n: n})
		at += uint64(n)
	}
	f := newFinder(graves)
	want := make([]bool, len(graves))
	var b []byte
	for i, g := range graves {
		value := graves[0].at - 1 - r.Uint64N(1<<40)
		switch r.IntN(4) {
		case 0:
			value, want[i] = g.at, true
		case 1:
			value, want[i] = g.at+uint64(g.n)-1, true
		case 2:
			if value = g.at + uint64(g.n); i+1 < len(graves) && graves[i+1].at == value {
				want[i+1] = true
			}
		}
		b = binary.LittleEndian.AppendUint64(b, value)
	}
	f.bytes(b)
	if !slices.Equal(f.found, want) {
		t.Error("others are found")
	}
	newFinder(nil).value(1)
}

// Of private memory what was written is looked at, and no more.
func TestOwnPages(t *testing.T) {
	const size = 64 * patch.PageSize
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil && err != unix.EINVAL {
		t.Fatal(err)
	}
	for _, page := range []int{3, 4, 5, 40} {
		mem[page*patch.PageSize] = 1
	}
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := uint64(uintptr(unsafe.Pointer(&mem[0])))
	list, err := ownPages(f, patch.Range{Lo: at, Hi: at + size})
	want := []patch.Range{{Lo: at + 3*patch.PageSize, Hi: at + 6*patch.PageSize}, {Lo: at + 40*patch.PageSize, Hi: at + 41*patch.PageSize}}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("%x, not %x: %v", list, want, err)
	}
}
