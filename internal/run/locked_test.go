package run

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// Found by stress-ng (mlock) under `guard --epochs 20ms`, whose two workers took ten seconds where natively they take half of one, and were still ending when all else had: mlockall had the kernel make every page that guard keeps for its logs, 3.9 GB in each process, where natively
// there were 2 MB. On a machine with less that is the end of the program, or of another.
func TestEpochsOfLockedMemory(t *testing.T) {
	ofAgent(t)
	if os.Geteuid() != 0 {
		t.Skip("only root may lock as much as is reserved (docs/status.md)")
	}
	native := finish(t, exec.Command(path("lockall")))
	if native.code != 4 {
		t.Skipf("%+v natively", native)
	}
	for _, how := range []map[string]any{{"On": true, "Most": 20 * time.Millisecond}, {"On": true, "Every": true, "Most": 20 * time.Millisecond}} {
		r, counts := epochsBy(t, how, path("lockall"))
		if r != native {
			t.Errorf("%+v\nnatively %+v", r, native)
		}
		t.Log(counts)
		if counts["epochs"] == 0 || how["Every"] != nil && counts["executed again: identical"]+counts["executed again: stack"] == 0 {
			t.Errorf("%v", counts)
		}
	}
}
