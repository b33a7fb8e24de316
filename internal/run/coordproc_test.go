package run

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A program that starts others under guard waited up to 20 ms for the end of each, by a busy loop in the kernel (proc_invalidate_siblings_dcache), which was a twentieth to a fifth of all that a shell script took. The coordinator is the last thread of a process that ends; it had files of its own
// directory in /proc open, which the kernel clears away after the parent has been told of the end, and before it lets the parent have it. So there are none before they are needed.
func TestCoordinatorHasNoFilesOfItsOwn(t *testing.T) {
	ofAgent(t)
	w := work(t, map[string]any{"ExitCode": 0, "Guard": map[string]any{"Bytes": 16}, "Epochs": map[string]any{"On": true, "Most": 20 * time.Millisecond}}, "2")
	process := fmt.Sprintf("/proc/%d/", w.prog)
	tables, err := filepath.Glob(process + "task/*/fd")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, table := range tables {
		var links []string
		files, _ := os.ReadDir(table)
		for _, f := range files {
			link, _ := os.Readlink(filepath.Join(table, f.Name()))
			links = append(links, link)
		}
		if !slices.Contains(links, process+"pagemap") {
			continue
		}
		found++
		for _, link := range links {
			if own := filepath.Dir(table); link == own || strings.HasPrefix(link, own+"/") {
				t.Errorf("it has %s open", link)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d of %d threads are coordinators", found, len(tables))
	}
	w.end()
}
