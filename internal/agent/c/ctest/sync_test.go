package ctest

import (
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// Every synchronisation function returns what it returns natively, sets errno as natively, leaves the same bytes in mutexes, and is cancelled
// where it is natively: for every type, protocol and kind, with timeouts, interruptions, dead owners, forks.
func TestSyncResults(t *testing.T) {
	prog := compile(t, "sync_results.c", "-Wno-unused-result", "-Wno-nonnull", "-D_FORTIFY_SOURCE=0")
	noStacks := filtered
	noStacks.StackDepth = 0
	for name, config := range map[string]wire.Config{"filtered": filtered, "no-stacks": noStacks, "all": all} {
		t.Run(name, func(t *testing.T) { same(t, config, prog) })
	}
}

func misuses(l *log) (list []wire.EvMisuse) {
	for _, e := range l.of(wire.TypeMisuse) {
		list = append(list, wire.DecodeMisuse(e.Words))
	}
	return list
}

// Each wrong use is told once, as what it is, of the object that it is about, with the stack and with that of the earlier event where there is
// one; the program's results stay native.
func TestSyncMisuse(t *testing.T) {
	prog := compile(t, "sync_misuse.c", "-Wno-unused-result", "-Wno-free-nonheap-object", "-D_FORTIFY_SOURCE=0")
	kinds := map[string]wire.Object{"mutex": wire.ObjectMutex, "rwlock": wire.ObjectRwlock, "spin": wire.ObjectSpin, "cond": wire.ObjectCond,
		"sem": wire.ObjectSem, "barrier": wire.ObjectBarrier}
	for _, c := range []struct {
		args   string // the first word is the fact's name
		kind   string
		stack2 bool
	}{
		{"unlock-not-owner mutex", "mutex", true}, {"unlock-not-owner recursive", "mutex", true}, {"unlock-not-owner spin", "spin", true},
		{"unlock-not-locked mutex", "mutex", false}, {"unlock-not-locked c11", "mutex", false},
		{"unlock-not-locked rwlock", "rwlock", false}, {"unlock-not-locked spin", "spin", false},
		{"unlock-read-write read", "rwlock", true}, {"unlock-read-write write", "rwlock", true},
		{"relock mutex", "mutex", true}, {"relock spin", "spin", true}, {"relock read-write", "rwlock", true}, {"relock write-write", "rwlock", true},
		{"destroy-locked mutex", "mutex", true}, {"destroy-locked other", "mutex", true}, {"destroy-locked rwlock", "rwlock", true},
		{"destroy-locked spin", "spin", true},
		{"destroy-waited cond", "cond", true}, {"destroy-waited mutex", "mutex", true}, {"destroy-waited sem", "sem", true},
		{"use-after-destroy mutex", "mutex", true}, {"use-after-destroy c11", "mutex", true}, {"use-after-destroy rwlock", "rwlock", true},
		{"use-after-destroy cond", "cond", true}, {"use-after-destroy sem", "sem", true}, {"use-after-destroy barrier", "barrier", true},
		{"use-before-init mutex", "mutex", false},
		{"cond-two-mutexes", "cond", true}, {"cond-wait-unlocked free", "cond", false}, {"cond-wait-unlocked other", "cond", true},
		{"barrier-bad-count", "barrier", false}, {"barrier-destroy-in-use", "barrier", true},
		{"exit-holding-lock mutex", "mutex", true}, {"exit-holding-lock rwlock", "rwlock", true},
		{"sem-bad-count init", "sem", false}, {"sem-bad-count post", "sem", false},
		{"free-locked", "mutex", true}, {"free-locked other", "mutex", true},
		{"reinit-locked mutex", "mutex", true}, {"reinit-locked rwlock", "rwlock", true},
		{"owner-died", "mutex", true}, {"recursion-overflow", "mutex", true},
	} {
		t.Run(c.args, func(t *testing.T) {
			for name, config := range map[string]wire.Config{"filtered": filtered, "all": all} {
				config.Heap, config.AllocDepth = 1, 16
				l := same(t, config, prog, c.args)
				list := misuses(l)
				if len(list) != 1 {
					t.Errorf("%s: %d facts, want 1: %+v", name, len(list), list)
					continue
				}
				m := list[0]
				if want := strings.Fields(c.args)[0]; m.What.String() != want {
					t.Errorf("%s: %v, want %s", name, m.What, want)
				}
				if m.Kind != kinds[c.kind] {
					t.Errorf("%s: about a %v, want a %s", name, m.Kind, c.kind)
				}
				if m.Stack == 0 && m.What != wire.MisuseExitHoldingLock || (m.Stack2 != 0) != c.stack2 {
					t.Errorf("%s: stacks S%d and S%d", name, m.Stack, m.Stack2)
				}
			}
		})
	}
}

// Right uses that resemble wrong ones give no fact: fork handlers, objects shared between processes, hand-over by semaphore, conditions destroyed
// while waiters leave, memory used again, errors asked for, hundreds of locks at once, locks in signal handlers.
func TestSyncRightUses(t *testing.T) {
	prog := compile(t, "sync_right.c", "-Wno-unused-result", "-Wno-cast-function-type", "-D_FORTIFY_SOURCE=0")
	for name, config := range map[string]wire.Config{"filtered": filtered, "all": all} {
		t.Run(name, func(t *testing.T) {
			config.Heap, config.AllocDepth = 1, 16
			for _, m := range misuses(same(t, config, prog)) {
				t.Errorf("%v of %v %#x, result %d, other T%d", m.What, m.Kind, m.Obj, m.Result, m.Other)
			}
		})
	}
}
