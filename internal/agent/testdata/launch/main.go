// Command launch starts its arguments as ripstop starts a program, without a session: for the tests of package agent.
package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/agent"
)

func main() {
	p, err := agent.Resolve(os.Args[1:], agent.OwnEnviron())
	fail(err)
	signals, err := agent.CatchSignals()
	fail(err)
	t, err := agent.Start(p, agent.OwnEnviron())
	fail(err)
	st := t.Supervise(signals, agent.Hooks{
		Quit:    func() { fmt.Fprintln(os.Stderr, "launch: SIGQUIT") },
		OurStop: func(int, unix.WaitStatus) bool { return false },
	})
	if !st.Exited {
		agent.DieLike(st.Signal)
	}
	os.Exit(st.Code)
}

func fail(err error) {
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	var r *agent.Refusal
	if errors.As(err, &r) {
		os.Exit(r.Code)
	}
	os.Exit(agent.ExitOurs)
}
