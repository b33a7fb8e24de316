package real

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/test/real/drive"
)

// planted is one error of testdata/plant.c.
type planted struct{ letter, rule, writer string }

var plants = []planted{{"o", "heap-overflow", "plant_over"}, {"u", "heap-underflow", "plant_under"}, {"f", "use-after-free-write", "plant_freed"}}

// stackFrame is a frame of a JSON report.
type stackFrame struct {
	Function, File string
	Line           int
}

// notSeen is said of programs with an allocator of their own.
const notSeen = "its heap is another allocator's"

// heapFinding is what is looked at of a finding.
type heapFinding struct {
	Type, Rule, Message string
	Parts               []struct {
		Text  string
		Stack []stackFrame
	}
	Objects []struct {
		Size      int
		Allocated []stackFrame
	}
	NotSeen []string `json:"not_seen"`
}

// TestPlanted: errors that a preloaded library makes in programs of others, at their end and while they work, under guard --epochs. The rule, the block by where it was allocated, where it was freed are always told, of each error once and of nothing
// else, and the program is as natively. The line that wrote is told where the epoch's re-execution comes out the same: writers says of which programs that is known; a line that is told is the right one. Without the errors nothing is found.
func TestPlanted(t *testing.T) {
	if os.Getenv("RIPSTOP_REAL") == "" {
		t.Skip("real programs run by make test-real (RIPSTOP_REAL=1)")
	}
	ripstop, err := filepath.Abs(filepath.Join(root, "bin/ripstop"))
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := filepath.Abs(root + "/bench/testdata/kernels.c")
	if err != nil {
		t.Fatal(err)
	}
	shared := directory(t)
	library, lines := plantLibrary(t, shared)
	rounds := 1
	if os.Getenv("RIPSTOP_SOAK") != "" {
		rounds = 10
	}
	list := append(drive.Programs(), drive.Alone()...)
	for _, p := range append(list, drive.Kernels(kernels)...) {
		t.Run(p.Name, func(t *testing.T) {
			if p.Sleeps && rounds == 1 {
				t.Skip("minutes of sleeps: RIPSTOP_SOAK=1")
			}
			native := once(t, p, drive.Job{Mode: drive.Native, Size: drive.Small, Shared: shared})
			for _, at := range []string{"end", "work"} {
				named, all := 0, 0
				for range rounds {
					n, of := plant(t, p, native, drive.Job{Mode: drive.Guard, Size: drive.Small, Shared: shared, Ripstop: ripstop}, library, at, "ouf", lines)
					named, all = named+n, all+of
				}
				plant(t, p, native, drive.Job{Mode: drive.Guard, Size: drive.Small, Shared: shared, Ripstop: ripstop}, library, at, "", lines)
				t.Logf("%s: of %d errors found %d had their line", at, all, named)
				if always(p.Name, at) && named < all {
					t.Errorf("%s: of %d errors found only %d had their line", at, all, named)
				}
			}
		})
	}
}

// writers are the programs of which the line that wrote is always known, at which time; docs/planted.md has the others.
var writers = map[string][]string{"pbzip2": {"end"}, "pigz": {"end"}}

// foreign are programs with an allocator of their own: of their heap nothing is seen, which is said.
var foreign = map[string]bool{"redis": true, "redis-default": true}

// told is what ripstop says on standard error besides its report.
var told = regexp.MustCompile(`(?m)^ripstop: (reported [0-9]+ findings?, see|stats:) .*\n`)

func always(name, at string) bool {
	if slices.ContainsFunc(drive.Kernels(""), func(p drive.Program) bool { return p.Name == name }) {
		return at == "end"
	}
	return slices.Contains(writers[name], at)
}

// plantLibrary builds the library, and says where its lines are that end in a letter.
func plantLibrary(t *testing.T, dir string) (path string, lines map[string]int) {
	t.Helper()
	source, err := filepath.Abs("testdata/plant.c")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "plant.so")
	if out, err := exec.Command("gcc", "-g", "-O1", "-w", "-fPIC", "-shared", "-pthread", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	lines = map[string]int{}
	for i, line := range strings.Split(string(text), "\n") {
		if at := strings.LastIndex(line, "; // "); at >= 0 && at == len(line)-len("; // o") {
			lines[line[at+5:]] = i + 1
		}
	}
	return path, lines
}

// plant runs the program with these errors, and gives how many were found, and of how many the line that wrote.
func plant(t *testing.T, p drive.Program, native drive.Outcome, job drive.Job, library, at, letters string, lines map[string]int) (named, all int) {
	t.Helper()
	job.Dir = directory(t)
	job.Flags = []string{"--epochs", "10s", "--stats", "--exit-code", "0", "--format", "json={findings}"}
	job.Env = []string{"LD_PRELOAD=" + library, "PLANT=" + letters, "AT=" + at}
	got := once(t, p, job)
	got.Stderr = told.ReplaceAll(got.Stderr, nil)
	same(t, native, got)
	t.Log(at, letters, epochsOf(t, &job))
	reports := glob(t, job.Dir, "findings.json")
	for _, report := range reports {
		left := map[string]planted{}
		for _, e := range plants {
			if strings.Contains(letters, e.letter) && (at == "end" || e.letter != "f") && !foreign[p.Name] {
				left[e.rule] = e
			}
		}
		list, unseen := heapFindings(t, report)
		if strings.Contains(unseen, notSeen) != foreign[p.Name] {
			t.Errorf("%s: not seen: %s", at, unseen)
		}
		for _, f := range list {
			e, ok := left[f.Rule]
			if !ok {
				t.Errorf("%s %q: found besides: %+v", at, letters, f)
				continue
			}
			delete(left, f.Rule)
			all++
			known, why := e.judged(f, lines)
			if why != "" {
				t.Errorf("%s %q: %s: %+v", at, letters, why, f)
			}
			if known {
				named++
			}
		}
		for rule := range left {
			t.Errorf("%s %q: %s was not found in %s", at, letters, rule, report)
		}
	}
	if len(reports) == 0 {
		t.Error("no report")
	}
	return named, all
}

// judged says whether the finding names who wrote, and what is wrong with it.
func (e planted) judged(f heapFinding, lines map[string]int) (known bool, why string) {
	in := func(stack []stackFrame, function string) bool {
		return slices.ContainsFunc(stack, func(s stackFrame) bool { return s.Function == function && filepath.Base(s.File) == "plant.c" })
	}
	if len(f.Objects) == 0 || f.Objects[0].Size != 100 || !in(f.Objects[0].Allocated, "plant_blocks") {
		return false, "not its block"
	}
	freed := false
	for _, part := range f.Parts {
		freed = freed || strings.Contains(part.Text, "was freed here") && in(part.Stack, "plant_free")
		if !strings.HasPrefix(part.Text, "Written") {
			continue
		}
		if len(part.Stack) == 0 || part.Stack[0].Function != e.writer || part.Stack[0].Line != lines[e.letter] {
			return false, fmt.Sprintf("not written by line %d", lines[e.letter])
		}
		known = true
	}
	if e.letter == "f" && !freed {
		return known, "not freed there"
	}
	return known, ""
}

// heapFindings reads a report: what was found, and what is said not to have been seen.
func heapFindings(t *testing.T, report string) (list []heapFinding, unseen string) {
	t.Helper()
	f, err := os.Open(report)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		var one heapFinding
		if err := json.Unmarshal(s.Bytes(), &one); err != nil {
			t.Fatalf("%s: %v", report, err)
		}
		if one.Type == "finding" {
			list = append(list, one)
		}
		unseen += strings.Join(one.NotSeen, "\n")
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return list, unseen
}
