package engine_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/wire"
)

// A failing client's patching ends with an error before it is done.
type failing struct {
	everywhere
	err error
	id  uint64
}

func (c *failing) Start(p *engine.Process) error {
	c.id = p.ID
	return c.err
}

// The file of trampolines had 64 MiB, and mariadbd takes more when each memory instruction tells: what came first was patched, the rest was not, locked instructions among it, and run --full
// told races of what those guard. Now there is room for more, and who asks is told when something was left out.
func TestPartly(t *testing.T) {
	lib, err := library()
	if err != nil {
		t.Fatalf("make: %v\n%s", err, lib)
	}
	for _, err := range []error{nil, errors.New("no room")} {
		c := &failing{everywhere: everywhere{t: t}, err: err}
		eng := engine.New(engine.Options{Client: c, CodeBytes: engine.Whole})
		s, sessionErr := agent.New(agent.Options{Config: wire.Config{Follow: 1}, Handler: deaf{}, Library: lib, Patcher: eng})
		if sessionErr != nil {
			t.Fatal(sessionErr)
		}
		cmd := exec.Command("/bin/true")
		cmd.Env = s.Environ(os.Environ())
		r := run(t, cmd)
		s.Close()
		eng.Stop()
		if r.state != "exit status 0" || c.id == 0 {
			t.Errorf("%+v, process %d", r, c.id)
		}
		if got := eng.Partly(c.id); got != (err != nil) {
			t.Errorf("with the error %v: partly is %v", err, got)
		}
		eng.Close()
	}
}
