// Package keys runs what needs protection keys in a machine that has them, where the one it runs on has none.
package keys

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rounds is how often each program is run: once in a gate, as an emulated machine is slow. Where processors have keys internal/race runs each twenty times.
func rounds() string {
	if os.Getenv("RIPSTOP_SOAK") != "" {
		return "4"
	}
	return "1"
}

func protectionKeys() bool {
	key, _, errno := unix.Syscall(unix.SYS_PKEY_ALLOC, 0, 0, 0)
	if errno == 0 {
		_, _, _ = unix.Syscall(unix.SYS_PKEY_FREE, key, 0, 0)
	}
	return errno == 0
}

func build(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestShared: what `run --races=shared` finds by protection keys, as internal/race's tests state it.
//
// Machines of this project's have had keys or none by turns, and for weeks what watches memory by keys was built and run by nobody.
func TestShared(t *testing.T) {
	if os.Getenv("RIPSTOP_REAL") == "" {
		t.Skip("the machine with protection keys runs by make test-keys (RIPSTOP_REAL=1)")
	}
	if protectionKeys() {
		t.Log("this processor has protection keys: internal/race has run these tests with them")
		return
	}
	race, err := filepath.Abs("../../internal/race")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runner, tests := filepath.Join(dir, "runner"), filepath.Join(dir, "race.test")
	build(t, race, "build", "-ldflags", "-E ripstop_entry", "-o", runner, "../run/testdata/runner")
	build(t, race, "test", "-c", "-o", tests, ".")
	out, status := inMachine(t, "export PATH="+os.Getenv("PATH")+" HOME=/root RIPSTOP_RUNNER="+runner+" RIPSTOP_ROUNDS="+rounds()+" RIPSTOP_KEYS=1\n"+
		"cd "+race+" && exec "+tests+" -test.v -test.run '^(TestProgramsShared|TestProgramsSharedTruth|TestProtectionKeys|TestSharingEnds|TestPardonsOfTakenKeys)$' -test.parallel 2 2>&1", 25*time.Minute)
	if status != 0 || strings.Count(out, "\n--- PASS: Test") < 5 {
		t.Fatalf("status %d\n%s", status, out)
	}
	t.Log(out[strings.Index(out, "--- "):])
}
