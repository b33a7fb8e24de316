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
			report := filepath.Join(t.TempDir(), "report")
			got := run(t, exec.Command(ripstop, "guard", "--exit-code", "0", "--format", "json="+report, "--", exe, s.name))
			ends, said := "exit 0", 0
			if s.ends != "" {
				ends = s.ends
			}
			if s.name == "twice" || s.name == "inside" {
				said = 1
			}
			if n := strings.Count(string(got.errs), "free(): "); got.how != ends || n != said {
				t.Errorf("it ended with %s, and says %q", got.how, got.errs)
			}
			list := findings(t, report)
			if s.rule == "none" {
				if len(list) > 0 {
					t.Errorf("%+v", list)
				}
				return
			}
			if s.and != "" && len(list) == 2 && list[1].Rule == s.and {
				list = list[:1]
			}
			if len(list) != 1 {
				t.Fatalf("%d findings: %+v", len(list), list)
			}
			f := &list[0]
			if why := s.wrong(f); why != "" {
				t.Errorf("%s: %+v", why, f)
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
