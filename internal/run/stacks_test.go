package run

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// What lies below a program's small alternate stack was overwritten: what functions of guard's leave below the stack pointer was cleared, or put back, beyond the stack's end, and what they need themselves was up to 1.7 KB more than a handler has of AT_MINSIGSTKSZ. And a stop that came while the handler was there, or together with its
// signal, needed a frame for which there was no room: the kernel ended the process (5,424 bytes, which is less than two frames: three of four kinds of handlers of 400). On stacks of some more room no stop came, and the epoch was lost. The kernel has none of the program's stacks now, and a handler's frame there has its registers elsewhere.
// Of SIGSTKSZ, which is 4,816 more than AT_MINSIGSTKSZ where that is 3,376, a handler needs what it natively does.
func TestSmallAlternateStacks(t *testing.T) {
	for _, kind := range []string{"nothing", "clock", "write", "mutex"} {
		for _, more := range []string{"0", "512", "2048", "4816", "12288"} {
			t.Run(kind+"/"+more, func(t *testing.T) {
				if kind != "mutex" || more != "0" {
					ofAgent(t)
				}
				native := finish(t, exec.Command(path("small"), kind, more))
				r, counts := epochsOf(t, 5*time.Millisecond, path("small"), kind, more)
				if native.stdout != "400 intact\n" || r != native {
					t.Errorf("%+v, natively %+v", r, native)
				}
				noOther(t, counts)
				if counts["executed again: identical"]+counts["executed again: stack"] < 5 {
					t.Errorf("%v", counts)
				}
			})
		}
	}
}

// The same of all that a program can do with such a stack and see of it: it has just the size that does natively. sigaltstack and the contexts of handlers say what the program has set, as the kernel's did that had it: in handlers, with SS_AUTODISARM, where a handler's context or a wrong argument changes it, and in a forked child.
// A handler of a stack that has overflowed goes on by siglongjmp, and one that leaves so from where the thread stands in an act of guard's does not cost it all the epochs that follow. Where an end of epoch came upon a signal of many, that signal stayed blocked for good (often: in six of eight runs of 100,000). A stack that is too small natively, too, ends the process by SIGSEGV.
func TestNarrowStacks(t *testing.T) {
	for kind, more := range map[string]string{"plain": "0", "often": "12288", "restart": "0", "nested": "3200", "again": "3200", "jump": "0", "loose": "0", "checked": "0", "asks": "0", "disarm": "0", "changes": "0", "computes": "0", "overflow": "0", "threads": "0", "locks": "0", "settings": "0", "child": "4816", "dies": "0"} {
		t.Run(kind, func(t *testing.T) {
			if kind != "plain" && kind != "dies" {
				ofAgent(t)
			}
			native := finish(t, exec.Command(path("narrow"), kind, more))
			if kind == "dies" {
				native.stderr = ""
			}
			for how, o := range map[string]map[string]any{"run": {}, "guard": {"Guard": map[string]any{"Bytes": 16}},
				"recorded": {"Epochs": map[string]any{"On": true, "Most": 5 * time.Millisecond}}, "executed again": {"Epochs": map[string]any{"On": true, "Every": true, "Most": 5 * time.Millisecond}}} {
				if kind == "locks" && o["Epochs"] == nil {
					continue // walks of stacks have no other room
				}
				o["Stats"], o["ExitCode"] = true, 0
				r, counts := countsOf(t, o, path("narrow"), kind, more)
				if kind == "dies" {
					if r.signal != native.signal || r.stdout != "" {
						t.Errorf("%s: %+v, natively %+v", how, r, native)
					}
					continue
				}
				if r != native {
					t.Errorf("%s: %+v, natively %+v", how, r, native)
				}
				noOther(t, counts)
				if how == "executed again" {
					t.Log(counts)
				}
			}
		})
	}
}

// glibc puts its handler over ours with the first thread. A stop's signal that came there in the middle of an end was looked at by a call of glibc's (whose it is), which was an event of the program's on top of wherever the thread was: a signal's handler that waited ran there, and that
// signal stayed blocked for good when glibc's handler returned (in one of 250 starts of `narrow often` on a busy machine).
func TestOwnActionStays(t *testing.T) {
	r := finish(t, command(t, map[string]any{"Epochs": map[string]any{"On": true, "Most": 10 * time.Second}}, path("action")))
	if r.code != 0 || r.stdout != "the same\n" {
		t.Errorf("%+v", r)
	}
}

// The instruction at which a lock of no mutex crashes is the agent's: the report began with a function without a name in libripstop.so, as if ripstop had crashed. It begins with who called, and says whose the instruction is.
func TestCrashInAgent(t *testing.T) {
	r := finish(t, command(t, pointerOptions, path("nowhere")))
	if !regexp.MustCompile(`SIGSEGV: \w+ where nothing is mapped, at 0x[0-9a-f]+ \(a null pointer, or near it\)[^\n]*\n\n  Crashed here in thread T2 [^\n]*\n    #0 enter [^\n]*nowhere\.c:10:`).MatchString(r.stderr) ||
		!strings.Contains(r.stderr, "Note: The instruction is one of ripstop's") || strings.Contains(r.stderr, "libripstop.so+") {
		t.Errorf("%+v", r)
	}
}
