package run

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/tracee"
)

func pointerProgram(t *testing.T, level string) string {
	t.Helper()
	prog := filepath.Join(t.TempDir(), "pointer"+level)
	if out, err := exec.Command("gcc", "-g", level, "-Wall", "-Wno-array-bounds", "-Wno-stringop-overflow", "-fno-stack-protector", "-pthread", "-o", prog, "testdata/pointer.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return prog
}

// A crash's report says who wrote the pointer that the instruction used (or the index, divisor, return address), the last write first: its epoch is executed again, with steps up to the crash, which say where the value was read from, and with that
// place watched. In each kind of testdata/pointer.c it is the function spoil_KIND. Before there were steps the code before the instruction was looked at, and of -O2, loops, calls and indices nothing was said.
func TestPointerOfCrash(t *testing.T) {
	ofAgent(t)
	for _, level := range []string{"-O0", "-O2"} {
		prog := pointerProgram(t, level)
		for _, k := range pointerKinds {
			t.Run(k.name+level, func(t *testing.T) { k.check(t, finish(t, command(t, pointerOptions, prog, k.name))) })
		}
	}
}

// Where perf is refused there were no steps to a crash, as they need breakpoints that count: who wrote its pointer was not told. They are done by int3; in the kind "crowd" other threads meet these, too. On a machine with breakpoints, too, this is the way without.
func TestPointerWithoutPerf(t *testing.T) {
	ofAgent(t)
	errors := []syscall.Errno{unix.EACCES, unix.EPERM, unix.ENOSYS}
	progs := []string{pointerProgram(t, "-O0"), pointerProgram(t, "-O2")}
	for i, k := range pointerKinds {
		e := errors[i%len(errors)]
		switch k.name {
		case "null", "divisor", "return":
			// Of the steps they are as the others. Where debug registers are never hit, who wrote a zero over a zero is not known to be missing, and a page of the stack is given up.
			continue
		}
		t.Run(k.name+"/"+unix.ErrnoName(e), func(t *testing.T) {
			k.check(t, finish(t, under(t, refuse(e, unix.SYS_PERF_EVENT_OPEN), pointerOptions, progs[i%len(progs)], k.name)))
		})
	}
}

// A pointer in memory that is shared with other processes: who wrote it is found where it stands in for that.
func TestPointerInSharedMemory(t *testing.T) {
	ofAgent(t)
	r := finish(t, command(t, pointerOptions, path("sharing"), "spoiled"))
	if want := regexp.MustCompile(`The pointer 0x1230 that it used, read from 0x[0-9a-f]+, was written here in thread T2 .*\n +#0 spoil_board `); r.code != 66 || !want.MatchString(r.stderr) {
		t.Errorf("%+v", r)
	}
}

// With `--guard-bytes 0 --quarantine 0` blocks have no guard bytes and their stacks are those of their call sites; crashes are reported, and followed, all the same. Blocks are not looked at: what `written` writes behind one is not told, and it ends natively.
func TestRecordedAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the Go code is TestPointerOfCrash's")
	}
	options := map[string]any{"ExitCode": 66, "Stats": true, "Guard": map[string]any{}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}
	prog := pointerProgram(t, "-O2")
	for _, k := range pointerKinds {
		switch k.name {
		case "null", "thread":
			t.Run(k.name, func(t *testing.T) { k.check(t, finish(t, command(t, options, prog, k.name))) })
		}
	}
	t.Run("crash", func(t *testing.T) {
		delete(options, "Epochs")
		if r := finish(t, command(t, options, prog, "null")); r.code != 66 || !strings.Contains(r.stderr, "SUMMARY: ripstop: crash ") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("written", func(t *testing.T) {
		native := finish(t, exec.Command(path("written")))
		options := map[string]any{"ExitCode": 66, "Guard": map[string]any{}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}
		if r := finish(t, command(t, options, path("written"))); r != native {
			t.Errorf("%+v, natively %+v", r, native)
		}
		options["Guard"] = map[string]any{"Bytes": 16}
		if r := finish(t, command(t, options, path("written"))); !strings.Contains(r.stderr, "SUMMARY: ripstop: heap-") {
			t.Errorf("with guard bytes: %+v", r)
		}
	})
}

var pointerOptions = map[string]any{"ExitCode": 66, "Stats": true, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}

type pointerKind struct{ name, says string }

var pointerKinds = []pointerKind{
	{"null", `The pointer 0x0 that it used, read from 0x[0-9a-f]+`},
	{"index", `The value 0x7fffff00 that the address it used was computed from, read from 0x[0-9a-f]+`},
	{"link", `The pointer 0x4141414141 that it used, read from 0x[0-9a-f]+`},
	{"locked", `The pointer 0x1230 that it used, read from 0x[0-9a-f]+`},
	{"sum", `The value 0x0 that the address it used was computed from, read from 0x[0-9a-f]+, L1 \(buffer\.at\)`},
	{"row", `The value 0x7fffff00 that the address it used was computed from, read from 0x[0-9a-f]+, L1 \(row\)`},
	{"deep", `The (pointer 0x1238 that it used|value 0x1238 that the address it used was computed from), read from 0x[0-9a-f]+`},
	{"outer", `The pointer 0x1244 that it used, read from 0x[0-9a-f]+`},
	{"returned", `The pointer 0x1240 that it used, read from 0x[0-9a-f]+`},
	{"function", `The pointer 0x1234567 that it used, read from 0x[0-9a-f]+`},
	{"return", `The return address 0x4242424242424242 that it went to, read from 0x[0-9a-f]+`},
	{"text", `The pointer 0x99 that it used, read from 0x[0-9a-f]+`},
	{"copied", `The pointer 0x1254 that it used, read from 0x[0-9a-f]+(.|\n)*The value 0x1254 that was written there, read from 0x[0-9a-f]+(.|\n)*The value 0x1254 that was written there, read from 0x[0-9a-f]+`},
	{"divisor", `The divisor 0x0, read from 0x[0-9a-f]+`},
	{"kernel", `The pointer 0x1250 that it used, read from 0x[0-9a-f]+`},
	{"crowd", `The pointer 0x1264 that it used, read from 0x[0-9a-f]+`},
	{"first", `The pointer 0x1268 that it used, read from 0x[0-9a-f]+`},
	{"waited", `The pointer 0x1270 that it used, read from 0x[0-9a-f]+`},
	{"both", `The pointer 0x1274 that it used, read from 0x[0-9a-f]+`},
	{"busy", `The pointer 0x1278 that it used, read from 0x[0-9a-f]+`},
	{"thread", `The pointer 0x1260 that it used, read from 0x[0-9a-f]+`},
	{"dead", `The pointer 0x1260 that it used, read from 0x[0-9a-f]+`},
}

// What was written before the epoch began is not known, and that is said; where no epoch has ended since (the machine is busy) who wrote it is told. Once nothing was said of a variable, and in a thread that had been in one function all the while nothing was found.
func TestPointerFromEarlier(t *testing.T) {
	ofAgent(t)
	options := map[string]any{"ExitCode": 66, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Most": 100 * time.Millisecond}}
	says := regexp.MustCompile(`The pointer 0x1280 that it used(?: was read from 0x[0-9a-f]+, L1 \(global\), where nothing was seen to write in the last epoch\n(.|\n)*  Location L1 \(0x[0-9a-f]+\) is global 'global'|, read from 0x[0-9a-f]+, was written here in main thread:\n    #0 spoil_earlier )`)
	for _, level := range []string{"-O0", "-O2"} {
		for _, perf := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s perf=%t", level, perf), func(t *testing.T) {
				cmd := command(t, options, pointerProgram(t, level), "earlier")
				if !perf {
					cmd = under(t, refuse(unix.EACCES, unix.SYS_PERF_EVENT_OPEN), options, pointerProgram(t, level), "earlier")
				}
				if r := finish(t, cmd); r.stdout != "begun\n" || r.code != 66 || !says.MatchString(r.stderr) {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// What a stack's end is is said. Once it was no more than an access that the mapping does not permit, which nobody knows for what it is.
func TestStackOverflow(t *testing.T) {
	ofAgent(t)
	prog := pointerProgram(t, "-O2")
	for _, kind := range []string{"overflow", "overflowed"} {
		t.Run(kind, func(t *testing.T) {
			r := finish(t, command(t, pointerOptions, prog, kind))
			if r.stdout != "begun\n" || r.code != 66 || !regexp.MustCompile(`SIGSEGV: .*, at 0x[0-9a-f]+ \(beside the stack pointer: the stack has probably overflowed\)\n`).MatchString(r.stderr) || !strings.Contains(r.stderr, "SUMMARY: ripstop: crash testdata/pointer.c") {
				t.Errorf("%+v", r)
			}
		})
	}
}

func (k pointerKind) check(t *testing.T, r result) {
	t.Helper()
	if r.stdout != "begun\n" || r.code != 66 || strings.Count(r.stderr, "WARNING:") != 1 {
		t.Errorf("status %d, signal %d, %q", r.code, r.signal, r.stdout)
	}
	writer, thread := "spoil_"+k.name, "main thread"
	if k.name == "thread" || k.name == "dead" {
		writer, thread = "spoil_thread", `thread T2 \(tid=\d+\)`
		if !strings.Contains(r.stderr, "was written here") && anotherWay(r.stderr) {
			t.Log(r.stderr)
			return
		}
	}
	by := ""
	if k.name == "kernel" {
		by = ", by the kernel,"
	}
	// Where breakpoints are never hit, places are watched by pages; one of the stack on which the program works is given up, so nothing is said of who wrote (docs/status.md). Never another one.
	if hit, known := tracee.BreakpointsHit(); k.name == "return" && known && !hit {
		if !strings.Contains(r.stderr, "WARNING: ripstop: crash") || strings.Contains(r.stderr, "was written here") {
			t.Errorf("%s", r.stderr)
		}
		return
	}
	want := regexp.MustCompile(k.says + ", was written here" + by + " in " + thread + `:\n(    #\d+ .*\n)*    #\d+ ` + writer + " ")
	if !want.MatchString(r.stderr) {
		t.Errorf("%s", r.stderr)
	}
	if strings.Contains(r.stderr, "is made of the bytes") {
		t.Errorf("a guess that is not needed:\n%s", r.stderr)
	}
	if k.name == "function" && !strings.Contains(r.stderr, "    #0 <null> (0x1234567)\n    #1 use_function ") {
		t.Errorf("who called it is not told:\n%s", r.stderr)
	}
}

// A pointer that was read from a block after that was freed, or from behind a block: what lies there is the guard's own, so nobody wrote it, but the block is known, and who freed it; likewise what a block held that nobody has filled in. Once the report said that the pointer was written
// by who had filled the block in long before, with a value that was not the one that crashed.
func TestPointerFromBlock(t *testing.T) {
	ofAgent(t)
	kinds := []struct{ name, message, part string }{
		{"stale", `The (?:pointer|value) 0xd7d5d3d1dfdddbd9 that (?:it used|the address it used was computed from) was read from 0x[0-9a-f]+, at offset 24 of heap block H1 \(allocated in spoil_stale\) of size 200; nobody wrote there since the block was handed out`, `  Heap block H1 \(0x[0-9a-f]+\) of size 200 was allocated by main thread:\n    #0 spoil_stale `},
		{"unset", `The (?:pointer|value) 0x0 that (?:it used|the address it used was computed from) was read from 0x[0-9a-f]+, at offset 24 of heap block H1 \(allocated in spoil_unset\) of size 5000; nothing was seen to write there in the last epoch`, `  Heap block H1 \(0x[0-9a-f]+\) of size 5000 was allocated by main thread:\n    #0 spoil_unset `},
		{"freed", `The (?:pointer|value) 0xd7d5d3d1dfdddbd9 that (?:it used|the address it used was computed from) was read from 0x[0-9a-f]+, at offset 0 of heap block H1 \(allocated in main\) of size \d+, after it was freed`, `  Heap block H1 was freed here in main thread:\n    #0 spoil_freed `},
		{"kept", `The (?:pointer|value) 0xd7d5d3d1dfdddbd9 that (?:it used|the address it used was computed from) was read from 0x[0-9a-f]+, at offset 0 of heap block H1 \(allocated in main\) of size \d+, after it was freed`, `  Heap block H1 was freed here in main thread:\n    #0 spoil_freed `},
		{"behind", `The (?:pointer|value) 0xc7c5c3c1cfcdcbc9 that (?:it used|the address it used was computed from) was read from 0x[0-9a-f]+, right behind the end of heap block H1 \(allocated in spoil_behind\) of size 40`, `  Heap block H1 \(0x[0-9a-f]+\) of size 40 was allocated by main thread:\n    #0 spoil_behind `},
	}
	for _, level := range []string{"-O0", "-O2"} {
		prog := pointerProgram(t, level)
		for _, k := range kinds {
			for _, epochs := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s%s epochs=%t", k.name, level, epochs), func(t *testing.T) {
					r := finish(t, command(t, map[string]any{"ExitCode": 66, "Guard": map[string]any{"Bytes": 16, "Quarantine": 4}, "Epochs": map[string]any{"On": epochs, "Most": 10 * time.Second}}, prog, k.name))
					if r.stdout != "begun\n" || r.code != 66 || strings.Count(r.stderr, "WARNING:") != 1 {
						t.Errorf("status %d, %q", r.code, r.stdout)
					}
					guess := strings.Contains(r.stderr, "Note: The address is made of the bytes that ")
					if epochs && (guess || !regexp.MustCompile(k.message).MatchString(r.stderr) || !regexp.MustCompile(k.part).MatchString(r.stderr) || strings.Contains(r.stderr, "was written here")) {
						t.Errorf("%s", r.stderr)
					}
					if !epochs && k.name == "kept" && level == "-O2" && !regexp.MustCompile(`  Note: A register points to 0x[0-9a-f]+, at offset 0 of heap block H1 of size \d+, which is freed by now\.`).MatchString(r.stderr) {
						t.Errorf("%s", r.stderr)
					}
					if !epochs && guess != (k.name != "unset") {
						t.Errorf("%s", r.stderr)
					}
				})
			}
		}
	}
}

// An abort behind a long loop was looked into by nine re-executions, of which six made tens of thousands of steps each that could not come to the end: the program took 5 s to die, and nothing was told by them.
func TestAbortBehindALoop(t *testing.T) {
	ofAgent(t)
	r := finish(t, command(t, map[string]any{"Epochs": map[string]any{"On": true}, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1 << 10}, "Stats": true}, path("loops")))
	m := regexp.MustCompile(`stats: guard, the same in try (\d+) +1\n`).FindStringSubmatch(r.stderr)
	if r.signal != syscall.SIGABRT && r.code != 66 || !strings.Contains(r.stderr, "std::out_of_range") || m == nil || len(m[1]) > 1 || m[1] > "4" {
		t.Errorf("%+v", r)
	}
}

// A crash in a function of the agent's that stands for the C library's (a lock at a null pointer's member) was told without who wrote the pointer: what was followed back were the agent's own registers.
func TestPointerOfCall(t *testing.T) {
	ofAgent(t)
	for _, level := range []string{"-O0", "-O2"} {
		prog := filepath.Join(t.TempDir(), "lockof"+level)
		if out, err := exec.Command("gcc", "-g", level, "-Wall", "-Wno-use-after-free", "-pthread", "-o", prog, "testdata/lockof.c").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, kind := range []string{"mutex", "first", "wild", "unlock", "signal", "rwlock", "post", "loop", "freed", "mutex thread"} {
			t.Run(kind+level, func(t *testing.T) {
				t.Parallel()
				o := maps.Clone(pointerOptions)
				o["Guard"] = map[string]any{"Bytes": 16, "Quarantine": 1 << 10}
				cmd := command(t, o, append([]string{prog}, strings.Fields(kind)...)...)
				if kind == "unlock" || kind == "loop" { // steps by int3
					cmd = under(t, refuse(unix.EPERM, unix.SYS_PERF_EVENT_OPEN), o, prog, kind)
				}
				r := finish(t, cmd)
				if r.code != 66 && r.signal != syscall.SIGSEGV || !strings.Contains(r.stderr, "SIGSEGV") || !strings.Contains(r.stderr, "#0 uses ") {
					t.Fatalf("%+v", r)
				}
				wrote := regexp.MustCompile(`(?s)that it used, read from 0x[0-9a-f]+, was written here[^\n]*\n    #0 breaks `).MatchString(r.stderr)
				switch kind {
				case "freed":
					if !strings.Contains(r.stderr, "of heap block H1") || !strings.Contains(r.stderr, "after it was freed") {
						t.Error(r.stderr)
					}
				default:
					if !wrote || !strings.Contains(r.stderr, "heap block H1 (allocated in main)") {
						t.Error(r.stderr)
					}
				}
			})
		}
	}
}
