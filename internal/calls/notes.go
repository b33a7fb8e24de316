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

// deaf takes no interest in events.
type deaf struct{}

func (deaf) Event(uint64, *wire.Event) {}
func (deaf) Batch()                    {}
func (deaf) End(uint64)                {}
