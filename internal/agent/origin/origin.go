// Package origin remembers what this process was given by whoever started it, before Go's runtime and packages changed it: which signals
// were ignored, the signal mask, which of the descriptors 0 to 2 were closed, the limits, the environment as it was.
// A target must be started with all of that, not with what Go made of it.
//
// The runtime installs handlers for nearly all signals and opens /dev/null for closed descriptors before any Go code runs. So the
// linker is told to begin elsewhere: `-ldflags '-E ripstop_entry'` (see the Makefile) makes the kernel jump to ripstop_entry, which
// asks the kernel and then jumps to Go's own entry. Without that flag Known is false and the answers are what can still be found out.
//
// Nothing may be imported here but unsafe: packages are initialised in the order of their import paths as soon as their imports are, and
// so this one comes before package syscall, whose initialisation raises the limit of open files.
package origin

import "unsafe"

// Filled by ripstop_entry.
var (
	entered uint64  // 1: ripstop_entry ran
	stack   uintptr // the initial stack pointer: argc, argv, NULL, envp, NULL
	ignored uint64  // bit sig-1
	mask    uint64  // bit sig-1
	closed  uint64  // bit fd
	nofile  [2]uint64
)

// Limit is a limit of the kernel's: RLIMIT_…, and the soft and hard value that we were given.
type Limit struct{ Resource, Soft, Hard uint64 }

// Read and raised by ripstop_entry: what a target is to be held to need not hold for us. RLIMIT_NPROC is the last.
var limits = [...]Limit{{Resource: rlimitCPU}, {Resource: rlimitFsize}, {Resource: rlimitData}, {Resource: rlimitAS}, {Resource: rlimitNproc}}

const rlimitCPU, rlimitFsize, rlimitData, rlimitNproc, rlimitAS = 0, 1, 2, 6, 9

func readNofile()

func init() {
	if entered == 0 {
		readNofile()
	}
}

// Known tells whether the program was entered through ripstop_entry.
func Known() bool { return entered != 0 }

// Ignored is the set of signals that were ignored: bit sig-1. Valid if Known.
func Ignored() uint64 { return ignored }

// Mask is the set of signals that were blocked: bit sig-1. Valid if Known.
func Mask() uint64 { return mask }

// Closed tells whether descriptor fd, 0 to 2, was closed. False if not Known.
func Closed(fd int) bool { return closed>>fd&1 != 0 }

// OpenFiles is the limit of open files, soft and hard.
func OpenFiles() (soft, hard uint64) { return nofile[0], nofile[1] }

// Limits are those that were raised for us. Nil if not Known.
func Limits() []Limit {
	if entered == 0 {
		return nil
	}
	return limits[:]
}

// Environ is the environment, string for string: os.Environ drops duplicates and what is no assignment. Nil if not Known.
func Environ() []string {
	if entered == 0 {
		return nil
	}
	word := func(i uintptr) uintptr {
		return *(*uintptr)(unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(&stack)), i*unsafe.Sizeof(uintptr(0))))
	}
	i := word(0) + 2 // past argc, argv and its NULL
	env := []string{}
	for ; word(i) != 0; i++ {
		at := word(i)
		p := *(**byte)(unsafe.Pointer(&at))
		n := 0
		for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
			n++
		}
		env = append(env, string(unsafe.Slice(p, n)))
	}
	return env
}
