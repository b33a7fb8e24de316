package pmu

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/ripstop/ripstop/internal/perf"
)

// The CPU time that a meter tells is what the process and its children had, also of a child that ended between two looks, and none twice.
func TestMeter(t *testing.T) {
	runtime.LockOSThread() // what it starts inherits from it
	defer runtime.UnlockOSThread()
	counter := perf.Attr{Type: typeSoftware, Config: taskClock, Flags: perf.FlagInherit | perf.FlagExcludeKernel | perf.FlagExcludeHV}
	e, err := open(&counter, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	processes := map[int]bool{os.Getpid(): true}
	var m meter
	m.byClocks(processes)
	begin := threadTime()
	sum := 0.0
	for range 10 {
		for spent := threadTime(); threadTime()-spent < 0.003; {
			touch()
		}
		sum += m.earned(processes, []event{e})
	}
	if own := threadTime() - begin; sum < 0.9*own { // the process has other threads
		t.Errorf("%.4f s of the %.4f that this thread had", sum, own)
	}
	child := exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	m.gone(child.Process.Pid)
	had := (child.ProcessState.UserTime() + child.ProcessState.SystemTime()).Seconds()
	before := float64(e.count()) * 1e-9
	for range looksEnded + 1 {
		sum += m.earned(processes, []event{e})
	}
	if before < had/2 {
		t.Fatalf("the event has %.4f s, and the child alone had %.4f", before, had)
	}
	if sum < before {
		t.Errorf("%.4f s in all where the event has %.4f (%.4f of the child)", sum, before, had)
	}
	process, _ := processTime(os.Getpid())
	if sum > process+had {
		t.Errorf("%.4f s in all; the process has had %.4f since its start, the child %.4f", sum, process, had)
	}
}
