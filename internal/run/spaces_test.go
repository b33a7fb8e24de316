package run

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Found by systemd's tests (test-resolved-stream) under `guard --epochs 20ms`: unshare(CLONE_NEWUSER) was refused (EINVAL), as the kernel wants a process of one thread there, and the coordinator is another. `unshare -r`, and every sandbox that begins so, failed.
func TestEpochsOfNamespaces(t *testing.T) {
	ofAgent(t)
	native := finish(t, exec.Command(path("spaces")))
	if native.code != 4 || !strings.Contains(native.stdout, "unshare done") {
		t.Skipf("%+v natively", native)
	}
	for _, how := range []map[string]any{{"On": true, "Most": 20 * time.Millisecond}, {"On": true, "Most": 10 * time.Second}, {"On": true, "Every": true, "Most": 10 * time.Millisecond}} {
		for range 5 {
			if r, counts := epochsBy(t, how, path("spaces")); r != native {
				t.Errorf("%v: %+v\nnatively %+v\n%v", how, r, native, counts)
			}
		}
	}
}
