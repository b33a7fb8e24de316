// Package agent is the Go side of a session: it carries the agent's library, starts a program under it, answers the agent's questions,
// and takes the events out of the rings. What events mean, and what is reported, is not its business.
//
// A Session has a directory (the library and a socket), a control page shared with all agents, and for every traced process its regions.
// Launching (Resolve, Start, Supervise) makes the program see us as little as can be: as it would be started by whoever started us.
//
// Everything that comes from a target is hostile until checked: messages, descriptors, and every word of shared memory.
package agent

import (
	"embed"
	"errors"
	"io/fs"
)

// lib holds libripstop.so once make has built it, and a README so that the directory is there without it.
//
//go:embed lib
var lib embed.FS

const libraryName = "libripstop.so"

// ErrNoAgent says that this binary was built without the agent.
var ErrNoAgent = errors.New("this ripstop was built without its agent: build it with 'make' in its source directory")

// Library returns the bytes of the agent's shared object.
func Library() ([]byte, error) {
	b, err := lib.ReadFile("lib/" + libraryName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoAgent
	}
	return b, err
}
