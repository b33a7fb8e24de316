package run

import (
	"io"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/agent"
)

// The goal for memory spares what an epoch writes down, and nothing else: the bench left all of guard's arena out, copies of the program's memory among it, as nobody could tell one from the other. Now each lies in a part of its own. The agent's parts
// are where Go looks for them: what was written before a checkpoint is once more in one of them, what is written down in another, and nothing is in none. And what one time of a program's life needed it had for good: when the memory is gone, and nothing is
// written down any more, both are given back.
func TestEpochsParts(t *testing.T) {
	ofAgent(t)
	p := startProgram(t, command(t, map[string]any{"ExitCode": 0, "Epochs": map[string]any{"On": true, "Most": 20 * time.Millisecond}}, path("parts")))
	p.expectOutput("ready")
	pid := childOf(t, p.cmd.Process.Pid, "parts")
	until := func(what string, is func(f agent.Footprint) bool) agent.Footprint {
		t.Helper()
		for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			f, err := agent.ReadFootprint(pid)
			if err != nil {
				t.Fatal(err)
			}
			if f.Own+f.Logs+f.Kept != f.Arena || f.Arena >= f.All || f.Own == 0 || f.Own > 2<<10 {
				t.Fatalf("%+v: the parts are not the whole, or not what they are said to be", f)
			}
			if is(f) {
				t.Logf("%s: %+v", what, f)
				return f
			}
			if time.Since(begun) > time.Minute {
				t.Fatalf("%s: not within a minute; %+v", what, f)
			}
		}
	}
	const written, rest, events = 16 << 10, 8 << 10, 512 // KiB
	before := until("16 MiB are kept, and events", func(f agent.Footprint) bool { return f.Kept >= written && f.Logs >= events })
	if before.Kept > written+rest || before.Logs > 16<<10 {
		t.Errorf("%+v: what is kept is %d KiB and some", before, written)
	}
	if _, err := io.WriteString(p.in, "x"); err != nil {
		t.Fatal(err)
	}
	until("both are given back", func(f agent.Footprint) bool { return f.Kept < rest && f.Logs < events })
	p.in.Close()
	p.wait()
	if p.cmd.ProcessState.ExitCode() != 0 {
		t.Error(p.cmd.ProcessState, p.seen)
	}
}
