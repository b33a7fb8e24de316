// Package ctest tests the agent's C against a real session. Programs are compiled from testdata, run natively and under the agent, and what
// they print, how they end, and what the agent sent is looked at.
package ctest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/wire"
)

// event is an event with its own memory.
type event struct {
	process uint64
	wire.Event
}

// log collects all that a session hands out.
type log struct {
	mu     sync.Mutex
	events []event
	ended  map[uint64]bool
}

func (l *log) Event(process uint64, e *wire.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := *e
	c.Words = append([]uint64(nil), e.Words...)
	l.events = append(l.events, event{process, c})
}
func (l *log) Batch() {}
func (l *log) End(process uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[process] = true
}

// of returns the events of one type.
func (l *log) of(t wire.Type) (list []event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Type == t {
			list = append(list, e)
		}
	}
	return list
}

var library = sync.OnceValues(func() ([]byte, error) {
	cmd := exec.Command("make", "-s", "-C", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return out, err
	}
	lib, err := os.ReadFile("../../lib/libripstop.so")
	if err != nil {
		return nil, err
	}
	return agent.WithoutProtected(lib) // as sessions that tell no accesses have it
})

// compile builds testdata/name.c (or .cc) with extra flags and returns the program's path.
func compile(t *testing.T, name string, flags ...string) string {
	t.Helper()
	compiler := "gcc"
	if strings.HasSuffix(name, ".cc") {
		compiler = "g++"
	}
	bin := filepath.Join(t.TempDir(), strings.TrimSuffix(name, filepath.Ext(name)))
	args := append([]string{"-g", "-Wall", "-pthread", "-o", bin, filepath.Join("testdata", name)}, flags...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", compiler, args, err, out)
	}
	return bin
}

// result is how a program ended.
type result struct {
	stdout, stderr string
	state          string
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 10 * time.Second // for children that live on, and hold these
	err := cmd.Run()
	if _, exit := err.(*exec.ExitError); err != nil && !exit {
		t.Fatal(err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.String()}
}

const limit = 60 * time.Second

func native(t *testing.T, env []string, argv ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = env
	return finish(t, cmd)
}

// under runs argv with the agent and returns how it ended, and what was sent.
func under(t *testing.T, config wire.Config, env []string, argv ...string) (result, *log, agent.Stats) {
	t.Helper()
	lib, err := library()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, lib)
	}
	l := &log{ended: map[uint64]bool{}}
	s, err := agent.New(agent.Options{Config: config, Handler: l, Library: lib, Warn: func(text string) { t.Logf("warning: %s", text) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if env == nil {
		env = os.Environ()
	}
	cmd.Env = s.Environ(env)
	r := finish(t, cmd)
	_, err = s.Close()
	if err != nil {
		t.Fatal(err)
	}
	st := s.Stats()
	if st.DetachedProcesses+st.BadProcesses > 0 {
		t.Errorf("%v: %d processes detached, %d bad", argv, st.DetachedProcesses, st.BadProcesses)
	}
	return r, l, st
}

var filtered = wire.Config{Follow: 1, Misuse: 1, StackDepth: 16}
var all = wire.Config{All: 1, Follow: 1, Misuse: 1, StackDepth: 16}

// same runs argv natively and under the agent and fails where output or end differ.
func same(t *testing.T, config wire.Config, argv ...string) *log {
	t.Helper()
	want := native(t, os.Environ(), argv...)
	got, l, _ := under(t, config, nil, argv...)
	if got != want {
		t.Errorf("%v:\nnative: %+v\nagent:  %+v", argv, want, got)
	}
	return l
}
