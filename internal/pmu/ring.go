package pmu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/perf"
)

// A ring is the buffer that the kernel writes an event's records to (perf_event.h, struct perf_event_mmap_page).
type ring struct {
	mem     []byte
	data    []byte
	scratch []byte // of a record that wraps
}

// Places in the first page.
const (
	pageCapabilities = 40
	pageTimeShift    = 50
	pageTimeMult     = 52
	pageTimeZero     = 64
	pageHead         = 1024
	pageTail         = 1032
	capUserTimeZero  = 1 << 4
)

// mapRing maps the buffer of an event: a power of two of pages.
func mapRing(e event, pages int) (*ring, error) {
	size := unix.Getpagesize()
	mem, err := unix.Mmap(int(e), 0, (1+pages)*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("mapping %d KiB for samples: %w; raise ulimit -l or /proc/sys/kernel/perf_event_mlock_kb", pages*size>>10, err)
	}
	if err != nil {
		return nil, fmt.Errorf("mapping %d KiB for samples: %w", pages*size>>10, err)
	}
	return &ring{mem: mem, data: mem[size:]}, nil
}

func (r *ring) close() {
	if r != nil && r.mem != nil {
		_ = unix.Munmap(r.mem)
		r.mem = nil
	}
}

func (r *ring) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&r.mem[at])) }

// clock gives the conversion of the event's times to the TSC, if the kernel says.
func (r *ring) clock() (c perf.TimeConv, ok bool) {
	le := binary.LittleEndian
	if le.Uint64(r.mem[pageCapabilities:])&capUserTimeZero == 0 {
		return c, false
	}
	return perf.TimeConv{
		Shift: uint64(le.Uint16(r.mem[pageTimeShift:])), Mult: uint64(le.Uint32(r.mem[pageTimeMult:])), Zero: le.Uint64(r.mem[pageTimeZero:]), CapTimeZero: true,
	}, true
}

// drain hands out the records that are there; body is the callee's until it returns. What comes meanwhile is left for the next time.
func (r *ring) drain(each func(t perf.Type, misc perf.Misc, body []byte) error) error {
	return r.look(each, true)
}

// look hands out the records that are there, and takes them out of the ring or leaves them there.
func (r *ring) look(each func(t perf.Type, misc perf.Misc, body []byte) error, take bool) error {
	head := atomic.LoadUint64(r.word(pageHead))
	tail := *r.word(pageTail)
	size := uint64(len(r.data))
	for tail < head {
		h := r.bytes(tail, 8)
		t, misc, n := perf.Type(binary.LittleEndian.Uint32(h)), perf.Misc(binary.LittleEndian.Uint16(h[4:])), uint64(binary.LittleEndian.Uint16(h[6:]))
		if n < 8 || n > head-tail || n > size {
			return fmt.Errorf("BUG: a record of %d bytes in a ring with %d", n, head-tail)
		}
		if err := each(t, misc, r.bytes(tail, n)[8:]); err != nil {
			return err
		}
		tail += n
	}
	if take {
		atomic.StoreUint64(r.word(pageTail), tail)
	}
	return nil
}

// bytes gives n bytes of the ring, joined in scratch if they wrap.
func (r *ring) bytes(at, n uint64) []byte {
	size := uint64(len(r.data))
	at %= size
	if at+n <= size {
		return r.data[at : at+n]
	}
	r.scratch = append(append(r.scratch[:0], r.data[at:]...), r.data[:n-(size-at)]...)
	return r.scratch
}
