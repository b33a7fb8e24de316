// Package sharing holds `ripstop run --tool=sharing` (bin/ripstop, or what RIPSTOP_BINARY names) against a program whose lines are known.
package sharing

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// False sharing is told with the fields, true sharing apart from it; padded counters, and memory that threads use one after the other, are not told. The output is as natively.
func TestLines(t *testing.T) {
	ripstop := os.Getenv("RIPSTOP_BINARY")
	if ripstop == "" {
		ripstop, _ = filepath.Abs("../../bin/ripstop")
	}
	rounds := 1
	if os.Getenv("RIPSTOP_SOAK") != "" {
		rounds = 20
	}
	for _, level := range []string{"-O0", "-O2"} {
		dir := t.TempDir()
		exe, report := filepath.Join(dir, "lines"), filepath.Join(dir, "report.json")
		if out, err := exec.Command("gcc", "-g", "-pthread", level, "-o", exe, "testdata/lines.c").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		native, err := exec.Command(exe).Output()
		if err != nil {
			t.Fatal(err)
		}
		for range rounds {
			out, err := exec.Command(ripstop, "run", "--tool=sharing", "--format", "json="+report, "--", exe).Output()
			if err != nil || string(out) != string(native) {
				t.Fatalf("%v: %q, natively %q", err, out, native)
			}
			text, err := os.ReadFile(report)
			if err != nil {
				t.Fatal(err)
			}
			var r struct {
				Lines []struct {
					Sharing string
					Moved   int
					Threads []struct {
						Number uint32
						Uses   []struct {
							Fields []struct{ Name, Object string }
						}
					}
				}
			}
			if err := json.Unmarshal(text, &r); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range r.Lines {
				var names []string
				for _, th := range l.Threads {
					for _, u := range th.Uses {
						for _, f := range u.Fields {
							name := f.Name
							if name == "" {
								name, _, _ = strings.Cut(f.Object, " allocated")
							}
							names = append(names, name)
						}
					}
				}
				slices.Sort(names)
				got = append(got, l.Sharing+" "+strings.Join(slices.Compact(names), " "))
				if len(l.Threads) != 2 || l.Moved < 49 {
					t.Errorf("%s: %d threads, moved %d times", got[len(got)-1], len(l.Threads), l.Moved)
				}
			}
			slices.Sort(got)
			want := []string{"false near.first near.second", "false offset 0 of a heap block of size 64 offset 8 of a heap block of size 64", "true both.count"}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, not %q\n%s", level, got, want, text)
			}
		}
	}
}
