package guard

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What the agent knows of a block is known as long as the block lives, however many there are. A table of half a million places had stacks and lengths: of a heap of more than some ten megabytes the older blocks had none, so an underflow was told as an
// overflow of the block in front (and left out if that had one, too), blocks had no allocation, and a wrong or second free was told as an abort alone. In mariadb that was seen now and then, as its heap lies elsewhere each time.
// And what the allocator says of a block that cannot be freed is said once: a re-execution of the abort said it again, four times. Of a block that was overwritten before an abort nobody was named who wrote, as the re-execution went past the abort's signal.
func TestOldBlocks(t *testing.T) {
	exe := filepath.Join(bin, "old")
	if out, err := exec.Command("gcc", "-g", "-O1", "-w", "-pthread", "-fno-builtin", "-o", exe, "testdata/old.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range statements(t, "testdata/old.c") {
		t.Run(s.name, func(t *testing.T) {
			f, got := s.check(t, exe)
			said := 0
			if s.rule == "double-free" || s.rule == "invalid-free" {
				said = 1
			}
			if n := strings.Count(string(got.errs), "free(): "); n != said {
				t.Errorf("it says %q", got.errs)
			}
			if f == nil {
				return
			}
			if len(f.Objects) == 0 || len(f.Objects[0].Allocated) == 0 || strings.TrimSuffix(f.Objects[0].Allocated[0].Function, "()") != s.frame {
				t.Errorf("the block was allocated by %+v", f.Objects)
			}
			if said == 0 && (len(f.Parts) == 0 || !strings.HasPrefix(f.Parts[0].Text, "Written here")) {
				t.Errorf("who wrote is not told: %+v", f)
			}
		})
	}
}
