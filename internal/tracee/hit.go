package tracee

import (
	"encoding/binary"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BreakpointsHit says whether hardware breakpoints are ever hit here. In a virtual machine whose host keeps the debug registers to itself (AMD SEV-ES without DebugSwap) they can be set, by perf_event_open and by
// ptrace alike, and a write goes by unseen. known: it was found out, once; it is not where perf_event_open is refused.
func BreakpointsHit() (hit, known bool) {
	r := tryBreakpoint()
	return r == tryHit, r != tryUnknown
}

type try int

const (
	tryUnknown try = iota
	tryHit
	tryMissed
)

// Not on a stack, which may move.
var triedOn uint64

var tryBreakpoint = sync.OnceValue(func() try {
	const onWrite, eightBytes = 2, 8 // HW_BREAKPOINT_W, HW_BREAKPOINT_LEN_8
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_BREAKPOINT, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Bp_type: onWrite, Ext1: uint64(uintptr(unsafe.Pointer(&triedOn))), Ext2: eightBytes,
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return tryUnknown
	}
	defer func() { _ = unix.Close(fd) }()
	touch(&triedOn)
	var count [8]byte
	switch n, err := unix.Read(fd, count[:]); {
	case err != nil || n != len(count):
		return tryUnknown
	case binary.LittleEndian.Uint64(count[:]) == 0:
		return tryMissed
	}
	return tryHit
})

//go:noinline
func touch(v *uint64) { *v++ }
