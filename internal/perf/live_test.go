package perf

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What this machine's perf and kernel write of a program sorting a file, perf reads as we do: registers, stack, compressed records, pipes.
func TestLiveAgainstPerf(t *testing.T) {
	dir := t.TempDir()
	lines := filepath.Join(dir, "lines")
	if err := os.WriteFile(lines, bytes.Repeat([]byte("a\nc\nb\n"), 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	sorting := []string{"--", "sort", "-o", "/dev/null", lines}
	for _, c := range []struct {
		name string
		args []string
		want []Type
	}{
		{"plain", []string{"-c", "500000", "--namespaces", "--switch-events", "-d", "-W", "--period"},
			[]Type{TypeSample, TypeMmap2, TypeComm, TypeExit, TypeNamespaces, TypeSwitch, TypeFinishedRound}},
		{"stack", []string{"-c", "500000", "--call-graph", "dwarf,512", "--user-regs=ax,sp,ip,r8,r15"}, []Type{TypeSample}},
		{"callchain", []string{"-F", "500", "--call-graph", "fp", "--buildid-mmap"}, []Type{TypeSample, TypeMmap2}},
		{"two events", []string{"-c", "500000", "-e", "page-faults", "-d"}, []Type{TypeSample, TypeMmap2}},
		{"compressed", []string{"-z", "-c", "50000"}, []Type{TypeSample, TypeMmap2, TypeExit}},
		{"group read", []string{"-c", "500000", "-s", "-e", "{cpu-clock,page-faults}:S"}, []Type{TypeSample}},
		{"pipe", []string{"-c", "500000"}, []Type{TypeSample, TypeHeaderAttr, TypeFeature}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "perf.data")
			args := append([]string{"record", "-q", "-e", "cpu-clock"}, c.args...)
			if c.name == "pipe" {
				piped := runPerf(t, append(append(args, "-o", "-"), sorting...)...)
				if err := os.WriteFile(out, []byte(piped), 0o600); err != nil {
					t.Fatal(err)
				}
			} else {
				runPerf(t, append(append(args, "-o", out), sorting...)...)
			}
			entries := comparePerf(t, out, false)
			seen, inflated := map[Type]int{}, 0
			for _, e := range entries {
				seen[e.Record.Type()]++
				if e.Inflated {
					inflated++
				}
			}
			for _, want := range c.want {
				if seen[want] == 0 {
					t.Errorf("no record %v: %v", want, seen)
				}
			}
			if c.name == "compressed" && inflated < 100 {
				t.Errorf("only %d records were compressed", inflated)
			}
			file, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			r := open(t, file)
			all(t, r)
			compareHeader(t, out, r)
			for _, bigEndian := range []bool{false, true} {
				r2 := open(t, rewrite(t, r, entries, false, bigEndian))
				sameEntries(t, "written again", all(t, r2), entries)
			}
			if r.Pipe {
				p, err := NewPipeReader(bytes.NewReader(file))
				if err != nil {
					t.Fatal(err)
				}
				sameEntries(t, "as a pipe", all(t, p), entries)
			}
		})
	}
}
