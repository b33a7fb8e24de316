package calls

import (
	"slices"
	"sync"

	"github.com/ripstop/ripstop/internal/wire"
)

// notes keeps what could not be counted until the program has ended, each once.
type notes struct {
	mu    sync.Mutex
	texts []string
}

func (n *notes) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.texts, text) {
		n.texts = append(n.texts, text)
	}
}

func (n *notes) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.texts)
}

// listener hears what agents say of calls that are not counted.
type listener struct{ notes *notes }

func (l listener) Event(_ uint64, e *wire.Event) {
	if e.Type != wire.TypeNotice {
		return
	}
	switch n := wire.DecodeNotice(e.Words); {
	case n.What == wire.NoticeNoTsc, n.What == wire.NoticeSandboxed && n.Aux == 1:
		l.notes.add("what a process called after it had forbidden itself the time stamp counter (PR_SET_TSC, strict seccomp)")
	}
}

func (listener) Batch()     {}
func (listener) End(uint64) {}
