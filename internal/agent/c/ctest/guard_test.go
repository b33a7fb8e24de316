package ctest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// guardPage is struct rs_guard_test of guard.c.
type guardPage struct {
	said, goOn, what                                             uint32
	result                                                       int32
	stopNs, memoryNs, pages, copied, dropped, remapped, tracking uint64
	pieces, threads                                              uint32
	thread                                                       [64]struct{ tid, context uint64 }
	piece                                                        [1024][2]uint64
}

const (
	guardCheckpoint = 1
	guardRollback   = 2
)

// memory is the private memory of a process by address of page. A page that is missing has no content, which reads as zeros or as its file's.
type memory map[uint64][4096]byte

// watched is a stopped process looked at from outside.
type watched struct {
	pid          int
	mem, pagemap *os.File
	page         *guardPage
}

// maps returns the process's mappings, but the coordinator's arena, merged where neighbours are alike.
func (w *watched) maps(t *testing.T) (list []mapping) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", w.pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var m mapping
		var offset uint64
		var dev string
		if _, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &m.lo, &m.hi, &m.prot, &offset, &dev, &m.inode); err != nil {
			t.Fatal(line, err)
		}
		if a := w.page.piece[0]; m.lo >= a[0] && m.hi <= a[0]+a[1] {
			continue
		}
		m.kernels = strings.Contains(line, "[v")
		if m.inode != 0 {
			m.bias = offset - m.lo
		}
		if n := len(list); n > 0 && list[n-1].hi == m.lo && list[n-1].mapped == m.mapped {
			list[n-1].hi = m.hi
			continue
		}
		list = append(list, m)
	}
	return list
}

type mapped struct {
	prot    string
	inode   uint64
	bias    uint64
	kernels bool
}

type mapping struct {
	lo, hi uint64
	mapped
}

// read copies all private memory that has content of its own.
func (w *watched) read(t *testing.T) memory {
	t.Helper()
	all := memory{}
	for _, m := range w.maps(t) {
		if m.kernels || m.prot[3] != 'p' || m.prot[1] != 'w' && m.prot[2] == 'x' {
			continue
		}
		words := make([]byte, (m.hi-m.lo)/4096*8)
		if _, err := w.pagemap.ReadAt(words, int64(m.lo/4096*8)); err != nil {
			t.Fatal(err)
		}
		for i := uint64(0); i < (m.hi-m.lo)/4096; i++ {
			if word := binary.LittleEndian.Uint64(words[i*8:]); word>>62 == 0 || word>>61&1 != 0 {
				continue
			}
			var page [4096]byte
			if _, err := w.mem.ReadAt(page[:], int64(m.lo+i*4096)); err != nil {
				t.Fatalf("%#x: %v", m.lo+i*4096, err)
			}
			all[m.lo+i*4096] = page
		}
	}
	return all
}

// frames copies what each thread will return from: registers, mask, alternate stack, all of XSAVE; by its number.
func (w *watched) frames(t *testing.T) map[uint64][]byte {
	t.Helper()
	const fpregs, size = 40 + 23*8, 304
	all := map[uint64][]byte{}
	for _, th := range w.page.thread[:w.page.threads] {
		uc := make([]byte, size)
		if _, err := w.mem.ReadAt(uc, int64(th.context)); err != nil {
			t.Fatal(err)
		}
		fp := int64(binary.LittleEndian.Uint64(uc[fpregs:]))
		clear(uc[fpregs : fpregs+8]) // where the area lies
		area := make([]byte, 512)
		if _, err := w.mem.ReadAt(area, fp); err != nil {
			t.Fatal(err)
		}
		area = make([]byte, binary.LittleEndian.Uint32(area[468:]))
		if _, err := w.mem.ReadAt(area, fp); err != nil {
			t.Fatal(err)
		}
		all[th.tid] = append(uc, area...)
	}
	return all
}

// except clears what no rollback touches.
func (m memory) except(pieces [][2]uint64) {
	for _, p := range pieces {
		for a := p[0]; a < p[0]+p[1]; a++ {
			if page, ok := m[a&^4095]; ok {
				page[a&4095] = 0
				m[a&^4095] = page
			}
		}
	}
}

func differences(t *testing.T, before, after memory) {
	t.Helper()
	var zero [4096]byte
	n := 0
	say := func(addr uint64, a, b [4096]byte) {
		for i := range a {
			if a[i] != b[i] {
				t.Errorf("at %#x %#x, was %#x", addr+uint64(i), b[i], a[i])
				break
			}
		}
	}
	for addr, a := range before {
		if b, ok := after[addr]; a != b {
			if n++; n < 10 && (ok || a != zero) {
				say(addr, a, b)
			}
		}
	}
	for addr, b := range after {
		if _, ok := before[addr]; !ok && b != zero {
			if n++; n < 10 {
				say(addr, zero, b)
			}
		}
	}
}

// guardEntries says how far behind pthread_create the entry points for tests are, which the library does not export.
func guardEntries(t *testing.T, lib []byte, names ...string) (list []string) {
	t.Helper()
	for _, name := range names {
		list = append(list, guardEntry(t, lib, "rs_guard_"+name))
	}
	return list
}

func guardEntry(t *testing.T, lib []byte, name string) string {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(lib))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint64{}
	for _, s := range symbols {
		at[s.Name] = s.Value
	}
	entry, base := at[name], at["pthread_create"]
	if entry == 0 || base == 0 {
		t.Fatalf("the agent has no %s", name)
	}
	return strconv.FormatInt(int64(entry-base), 10)
}

// guardTurns runs guard_back and looks at each checkpoint and rollback from outside.
func guardTurns(t *testing.T, threads, times int, flags string, tracking uint64) {
	lib, err := library()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, lib)
	}
	dir := t.TempDir()
	preload, shared := filepath.Join(dir, "libripstop.so"), filepath.Join(dir, "page")
	if err := os.WriteFile(preload, lib, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(shared, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(shared, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	area, err := unix.Mmap(int(f.Fd()), 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(area)
	w := &watched{page: (*guardPage)(unsafe.Pointer(&area[0]))}
	argv := append([]string{shared, strconv.Itoa(threads), strconv.Itoa(times), flags}, guardEntries(t, lib, "begin", "checkpoint", "rollback", "test")...)
	cmd := exec.Command(compile(t, "guard_back.c", "-O2", "-mavx2", "-ldl"), argv...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+preload)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	w.pid = cmd.Process.Pid
	if w.mem, err = os.Open(fmt.Sprintf("/proc/%d/mem", w.pid)); err != nil {
		t.Fatal(err)
	}
	defer w.mem.Close()
	if w.pagemap, err = os.Open(fmt.Sprintf("/proc/%d/pagemap", w.pid)); err != nil {
		t.Fatal(err)
	}
	defer w.pagemap.Close()
	var before memory
	var frames map[uint64][]byte
	var maps []mapping
	var rollbacks, worst, changed uint64
	for said := uint32(0); ; {
		select {
		case err := <-ended:
			if err != nil || out.String() != "well\n" || errs.Len() > 0 {
				t.Errorf("%v, output %q, errors %q", err, out.String(), errs.String())
			}
			// Every second checkpoint is gone back to twice.
			if want := uint64(times + times/2); rollbacks != want {
				t.Errorf("%d rollbacks, want %d", rollbacks, want)
			}
			t.Logf("%d rollbacks, %d pages changed each, longest stop %v", rollbacks, changed/max(rollbacks, 1), time.Duration(worst))
			return
		default:
		}
		if s := atomic.LoadUint32(&w.page.said); s == said {
			time.Sleep(50 * time.Microsecond)
			continue
		} else {
			said = s
		}
		worst = max(worst, w.page.stopNs)
		if w.page.result != 0 || w.page.tracking != tracking {
			t.Fatalf("%d: result %d, tracking %#x, want %#x", w.page.what, w.page.result, w.page.tracking, tracking)
		}
		switch w.page.what {
		case guardCheckpoint:
			before, frames, maps = w.read(t), w.frames(t), w.maps(t)
			if len(frames) != threads+1 {
				t.Fatalf("%d threads stopped, want %d", len(frames), threads+1)
			}
		case guardRollback:
			rollbacks++
			changed += w.page.copied + w.page.dropped
			after := w.read(t)
			pieces := w.page.piece[1:w.page.pieces]
			before.except(pieces)
			after.except(pieces)
			differences(t, before, after)
			now := w.frames(t)
			for tid, f := range frames {
				if !bytes.Equal(f, now[tid]) {
					t.Errorf("thread %d returns with other registers", tid)
				}
			}
			if len(now) != len(frames) {
				t.Errorf("%d threads, want %d", len(now), len(frames))
			}
			if m := w.maps(t); fmt.Sprint(m) != fmt.Sprint(maps) {
				t.Errorf("mapped %v\nwas %v", m, maps)
			}
			if t.Failed() {
				t.Fatalf("after %d rollbacks", rollbacks)
			}
		}
		atomic.StoreUint32(&w.page.goOn, said)
	}
}

// A rollback puts all private memory, the map, registers, offsets and the end of the heap back, byte for byte as another process saw them at the checkpoint; threads of the epoch are gone, and the program goes on rightly.
// 1,000 times each with RIPSTOP_SOAK=1.
func TestGuardRollback(t *testing.T) {
	times := 16
	if os.Getenv("RIPSTOP_SOAK") != "" {
		times = 667
	}
	for _, threads := range []int{2, 4, 16} {
		t.Run(strconv.Itoa(threads), func(t *testing.T) { guardTurns(t, threads, times, "0", 3) })
	}
	t.Run("plain", func(t *testing.T) { guardTurns(t, 8, 20, "1", 2) })
}

// preloadable makes the agent's library, and a file of it for LD_PRELOAD.
func preloadable(t *testing.T) (lib []byte, path string) {
	t.Helper()
	lib, err := library()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, lib)
	}
	path = filepath.Join(t.TempDir(), "libripstop.so")
	if err := os.WriteFile(path, lib, 0o700); err != nil {
		t.Fatal(err)
	}
	return lib, path
}

// Threads in every kind of wait are stopped a hundred times; no wait shows it, and none lasts for ever.
func TestGuardStop(t *testing.T) {
	lib, preload := preloadable(t)
	argv := append([]string{compile(t, "guard_stop.c", "-O2", "-ldl"), "100"}, guardEntries(t, lib, "begin", "stop")...)
	got := native(t, append(os.Environ(), "LD_PRELOAD="+preload), argv...)
	if got.stdout != "well\n" || got.stderr != "" || got.state != "exit status 0" {
		t.Errorf("%+v", got)
	}
}
