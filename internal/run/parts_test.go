package run

import (
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/agent"
)

// The goal for memory spares what an epoch writes down, and nothing else: the bench left all of guard's arena out, copies of the program's memory among it, as nobody could tell one from the other. Now each lies in a part of its own. The agent's parts
// are where Go looks for them: what was written before a checkpoint is once more in one of them, what is written down in another, and nothing is in none.
func TestEpochsParts(t *testing.T) {
	p := startProgram(t, command(t, map[string]any{"ExitCode": 0, "Epochs": map[string]any{"On": true, "Most": 20 * time.Millisecond}}, path("parts")))
	p.expectOutput("ready")
	pid := childOf(t, p.cmd.Process.Pid, "parts")
	const written, events = 16 << 10, 2000 * 16 >> 10 // KiB
	var f agent.Footprint
	for begun := time.Now(); f.Kept < written || f.Logs < events; {
		var err error
		if f, err = agent.ReadFootprint(pid); err != nil {
			t.Fatal(err)
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("%+v: %d KiB were written, and events of %d KiB", f, written, events)
		}
	}
	t.Logf("%+v", f)
	if f.Own == 0 || f.Own > 2<<10 || f.Logs > 12<<10 || f.Kept > written+8<<10 {
		t.Errorf("%+v: what is kept is %d KiB and some, the rest is little", f, written)
	}
	if f.Own+f.Logs+f.Kept != f.Arena || f.Arena >= f.All {
		t.Errorf("%+v: the parts are not the whole", f)
	}
	p.in.Close()
	p.wait()
	if p.cmd.ProcessState.ExitCode() != 0 {
		t.Error(p.cmd.ProcessState, p.seen)
	}
}
