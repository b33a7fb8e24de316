package engine

import (
	"os"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// A thread whose last destructors run is no longer among those that the agent counts, nor is one that clone made. Code that they ran was changed as if nobody ran it.
func TestAlone(t *testing.T) {
	p := &Process{PID: os.Getpid(), page: &wire.PatchPage{Threads: 1}}
	if p.alone() { // this process has several threads
		t.Error("alone among threads that the agent does not know")
	}
}
