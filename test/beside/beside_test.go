package beside

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/test/stated"
)

var table = flag.String("table", "", "write the table of docs to this file; all programs are run")

const testdata = "../../internal/race/testdata/"

// few are those of the gate; the others need RIPSTOP_SOAK=1 or -table.
var few = []string{"locks.c", "pgdb.c", "classes.cc", "called/memory.c"}

var soak = os.Getenv("RIPSTOP_SOAK") == "1"

// rounds is how often ripstop runs a program: it must find each race each time. Of the others a race counts as found if one of their runs (two with -table) found it.
var rounds = map[bool]int{false: 2, true: 20}[soak]

func programs(t *testing.T) []string {
	t.Helper()
	if !soak && *table == "" {
		return few
	}
	var all []string
	for _, dir := range []string{"", "called/", "unstepped/", "shared/"} {
		for _, pattern := range []string{"*.c", "*.cc"} {
			found, err := filepath.Glob(testdata + dir + pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				all = append(all, strings.TrimPrefix(f, testdata))
			}
		}
	}
	if len(all) < 10 {
		t.Fatalf("only %v", all)
	}
	return all
}

// row is what the tools made of a program.
type row struct {
	name   string
	stated int
	by     []Judged // by tool
	failed []error  // by tool: it did not run to the end
}

// ripstop finds every stated race of the programs each time and tells nothing else, so at least what any other detector finds that is true. What the others miss, or tell falsely, is no failure: it is
// the table.
func TestBeside(t *testing.T) {
	for _, tool := range []string{"gcc", "g++", "valgrind", "setarch"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: script/deps test installs it", err)
		}
	}
	ripstop := filepath.Join(t.TempDir(), "ripstop")
	build := exec.Command("go", "build", "-ldflags", "-E ripstop_entry", "-o", ripstop, "../../cmd/ripstop")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tools := Tools(ripstop)
	var rows []row
	for _, name := range programs(t) {
		t.Run(name, func(t *testing.T) { rows = append(rows, compare(t, name, tools)) })
	}
	if *table != "" && !t.Failed() {
		if err := os.WriteFile(*table, []byte(page(tools, rows)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func compare(t *testing.T, name string, tools []Tool) row {
	source, dir := testdata+name, t.TempDir()
	races, err := stated.Races(source)
	if err != nil {
		t.Fatal(err)
	}
	r := row{name: name, stated: len(races), by: make([]Judged, len(tools)), failed: make([]error, len(tools))}
	for i := range tools {
		ours := tools[i].Name == "ripstop"
		n := 1
		if ours {
			n = rounds
		} else if *table != "" {
			n = 2
		}
		exe, err := tools[i].Compile(source, dir)
		if err != nil {
			t.Fatal(err)
		}
		r.by[i].Found = map[string]bool{}
		for range n {
			reports, err := tools[i].Run(exe, dir)
			if err != nil {
				if ours {
					t.Fatal(err)
				}
				r.failed[i] = err
				t.Log(err)
				break
			}
			j := Judge(source, races, reports)
			maps.Copy(r.by[i].Found, j.Found)
			for _, f := range j.False {
				if !slices.Contains(r.by[i].False, f) {
					r.by[i].False = append(r.by[i].False, f)
				}
			}
			for _, missed := range slices.Sorted(maps.Keys(races)) {
				if ours && !j.Found[missed] && races[missed].Kind != "missed" {
					t.Errorf("%s is not found", missed)
				}
			}
		}
		for _, f := range r.by[i].False {
			if ours {
				t.Errorf("not stated: %s", f)
			} else {
				t.Logf("%s: %s", tools[i].Name, f)
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(races)) {
		who := ""
		for i := range tools {
			if r.by[i].Found[n] {
				who += " " + tools[i].Name
			}
		}
		t.Logf("%s:%s", n, who)
	}
	return r
}

// page is the table as a page of docs.
func page(tools []Tool, rows []row) string {
	var b strings.Builder
	b.WriteString(`# Side by side

What ripstop (` + "`run --full`" + `), Helgrind, DRD and ThreadSanitizer make of the racy programs of ` + "`internal/race/testdata`" + `: how many of the races that a program states each finds, and, behind a plus, how many pairs of places
it tells that are not stated. Made by ` + "`go test ./test/beside -run TestBeside -table ../../docs/beside.md`" + `; the test fails where ripstop misses one or tells one too many. ripstop ran each program ` +
		fmt.Sprint(rounds) + ` times and found
each race each time but those that are stated as missed ([races-coverage.md](races-coverage.md)); of two runs of each other tool the better counts.

The programs are written to show what ripstop must tell apart, so they say where the others differ and not which is best: Helgrind and DRD know no atomics by design, and take what C11 atomics order for races; DRD tells one place
of the two; ThreadSanitizer, with all of the source, knows relaxed atomics for what they are, and which plain accesses are none.

`)
	fmt.Fprintf(&b, "| program | stated |")
	for _, t := range tools {
		fmt.Fprintf(&b, " %s |", t.Name)
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("---|", len(tools)))
	total, found, wrong := 0, make([]int, len(tools)), make([]int, len(tools))
	for _, r := range rows {
		fmt.Fprintf(&b, "| `%s` | %d |", r.name, r.stated)
		total += r.stated
		for i := range tools {
			cell := fmt.Sprint(len(r.by[i].Found))
			if n := len(r.by[i].False); n > 0 {
				cell += fmt.Sprintf(" + %d", n)
			}
			if r.failed[i] != nil {
				cell += ", did not end"
			}
			found[i] += len(r.by[i].Found)
			wrong[i] += len(r.by[i].False)
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "| all | %d |", total)
	for i := range tools {
		fmt.Fprintf(&b, " %d + %d |", found[i], wrong[i])
	}
	b.WriteByte('\n')
	return b.String()
}
