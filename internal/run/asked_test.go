package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/ctl"
)

// working is a run of testdata/asked.c that goes on until end is called.
type working struct {
	t         *testing.T
	cmd       *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Reader
	errs      bytes.Buffer
	pid, prog int // of ripstop and of the program
}

// asks gives the answer of the process, or of ripstop.
func (w *working) asks(pid int, do string) ctl.Answer {
	return ctl.Ask(ctl.Question{PID: pid, Do: do, Format: "json", WithinMS: 60_000})
}

// work starts it, and waits until it works: natively it is the same.
func work(t *testing.T, o map[string]any, args ...string) *working {
	t.Helper()
	w := &working{t: t, cmd: command(t, o, append([]string{path("asked")}, args...)...)}
	w.in, _ = w.cmd.StdinPipe()
	out, _ := w.cmd.StdoutPipe()
	w.out, w.cmd.Stderr = bufio.NewReader(out), &w.errs
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // where the test gave up
		if w.cmd.ProcessState == nil {
			w.in.Close()
			w.cmd.Process.Kill()
			w.cmd.Wait()
		}
	})
	line, err := w.out.ReadString('\n')
	if line != "begun\n" {
		t.Fatalf("%q, %v; %s", line, err, w.errs.String())
	}
	w.pid = w.cmd.Process.Pid
	a := w.asks(w.pid, ctl.DoStatus)
	if a.Outcome != ctl.Done || a.Status.Ripstop != w.pid || a.Status.PID == w.pid || a.Status.Program != path("asked") {
		t.Fatalf("%+v %+v", a, a.Status)
	}
	w.prog = a.Status.PID
	return w
}

// end has it end, and compares with native.
func (w *working) end() {
	w.t.Helper()
	w.in.Close()
	timer := time.AfterFunc(5*time.Minute, func() { w.cmd.Process.Signal(syscall.SIGABRT) })
	rest, err := io.ReadAll(w.out)
	w.cmd.Wait()
	timer.Stop()
	if code := w.cmd.ProcessState.ExitCode(); string(rest) != "agreed right 0\n" || err != nil || code != 3 || w.errs.Len() > 0 {
		w.t.Errorf("status %d, %q, %v; it says %s", code, rest, err, w.errs.String())
	}
}

var withEpochs = map[string]any{"Epochs": map[string]any{"On": true, "Most": 10 * time.Second}, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1024}}

// Twenty questions of each kind while threads work, to the program's pid and to ripstop's, one after another and several at once: the program notices nothing, epochs end as asked, and re-executions come out
// identical (but for words of stacks: docs/status.md). On a machine that is behind an end may not be had in time; that is an answer, too.
func TestAsked(t *testing.T) {
	w := work(t, withEpochs, "4")
	done, verdicts := map[string]int{}, map[string]int{}
	var mu sync.Mutex
	ask := func(i int, do string) {
		a := w.asks([]int{w.prog, w.pid}[i%2], do)
		mu.Lock()
		defer mu.Unlock()
		late := strings.Contains(a.Why, "in time")
		switch {
		case a.Outcome == ctl.CouldNot && late && (do == ctl.DoCheckpoint || do == ctl.DoRollback):
			t.Log(do, a.Why)
		case a.Outcome == ctl.CouldNot && do == ctl.DoRollback && strings.Contains(a.Why, "a thread was made or ended"):
			// the first ones: a thread began in the epoch, or is beginning
			t.Log(do, a.Why)
		case a.Outcome != ctl.Done:
			t.Errorf("%s: %s, %s", do, a.Outcome, a.Why)
		case do == ctl.DoStatus && (a.Status.PID != w.prog || a.Status.Mode != "guard --epochs 10s" || a.Status.Epochs == nil || !a.Status.Epochs.Recording || a.Status.Epochs.Begun != a.Status.Epochs.Ended+1 || a.Status.Threads != 5 || a.Status.Findings != 0):
			t.Errorf("%+v %+v", a.Status, a.Status.Epochs)
		case do == ctl.DoReport && (a.Exit != 0 || !bytes.HasSuffix(a.Report, []byte("}\n"))):
			t.Errorf("exit %d, %s", a.Exit, a.Report)
		case do == ctl.DoCheckpoint && (a.Epoch.Number < 2 || a.Epoch.Verdict != "" || a.Epoch.TookMS <= 0):
			t.Errorf("%+v", a.Epoch)
		case do == ctl.DoRollback && a.Epoch.Verdict != "identical" && a.Epoch.Verdict != "stack":
			t.Errorf("%+v, differs %+v", a.Epoch, a.Epoch.Differs)
		case do == ctl.DoRollback && (a.Epoch.Number < 2 || a.Epoch.Tries < 1 || a.Epoch.TookMS <= 0):
			t.Errorf("%+v", a.Epoch)
		default:
			done[do]++
			if a.Epoch != nil {
				verdicts[a.Epoch.Verdict]++
			}
		}
	}
	for i := range 12 {
		for _, do := range ctl.Questions {
			ask(i, do)
		}
	}
	var wg sync.WaitGroup
	for i := range 8 {
		for _, do := range ctl.Questions {
			wg.Go(func() { ask(i, do) })
		}
	}
	wg.Wait()
	// Who asks and does not wait.
	for range 5 {
		if a := ctl.Ask(ctl.Question{PID: w.prog, Do: ctl.DoRollback, WithinMS: 1}); a.Outcome == ctl.Absent || a.Outcome == ctl.Unsupported {
			t.Errorf("%+v", a)
		}
	}
	w.end()
	t.Log(done, verdicts)
	if done[ctl.DoStatus] != 20 || done[ctl.DoReport] != 20 || done[ctl.DoCheckpoint] == 0 || done[ctl.DoRollback] == 0 {
		t.Errorf("answered: %v", done)
	}
}

// Questions that come while the program ends are answered, one way or another; then nobody watches it.
func TestAskedAtTheEnd(t *testing.T) {
	w := work(t, withEpochs, "2")
	var wg sync.WaitGroup
	stop := make(chan bool)
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if a := w.asks(w.prog, ctl.Questions[(i+n)%len(ctl.Questions)]); a.Outcome == ctl.Unsupported {
					t.Errorf("%+v", a)
				}
			}
		})
	}
	w.end()
	if a := w.asks(w.pid, ctl.DoStatus); a.Outcome != ctl.Absent {
		t.Errorf("%+v", a)
	}
	close(stop)
	wg.Wait()
}

// An epoch that was lost where nobody asks for its end went on to its time: with --epochs 1h nothing was recorded for an hour. So it is where a thread is made past the agent, as jemalloc makes its own.
func TestLostEpochsEnd(t *testing.T) {
	w := work(t, map[string]any{"Epochs": map[string]any{"On": true, "Most": time.Hour}, "Guard": map[string]any{"Bytes": 16, "Quarantine": 1024}}, "2", "past")
	defer w.end()
	for until := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		a := w.asks(w.prog, ctl.DoStatus)
		if a.Outcome != ctl.Done || a.Status.Epochs == nil {
			t.Fatalf("%+v", a)
		}
		e := a.Status.Epochs
		if len(e.Lost) > 0 && e.NowLost == "" {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%+v", e)
		}
	}
}

// Without epochs there is no rollback, and that is said; status and report are there for every run.
func TestAskedWithoutEpochs(t *testing.T) {
	for mode, o := range map[string]map[string]any{"guard": {"Guard": map[string]any{"Bytes": 16, "Quarantine": 1024}}, "run": nil} {
		w := work(t, o, "2")
		for _, do := range []string{ctl.DoCheckpoint, ctl.DoRollback} {
			if a := w.asks(w.prog, do); a.Outcome != ctl.Unsupported || !strings.HasSuffix(a.Why, mode+" records no epochs: no "+do) {
				t.Errorf("%s: %+v", mode, a)
			}
		}
		if a := w.asks(w.prog, ctl.DoStatus); a.Outcome != ctl.Done || a.Status.Mode != mode || a.Status.Epochs != nil || a.Status.Threads != 3 {
			t.Errorf("%s: %+v %+v", mode, a, a.Status)
		}
		w.end()
	}
}

// forkedChild is the forked child that the program has told of, known to ripstop, which it makes itself on its own.
func forkedChild(t *testing.T, w *working) (child int) {
	t.Helper()
	line, _ := w.out.ReadString('\n')
	if err := json.Unmarshal([]byte(line), &child); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); w.asks(child, ctl.DoStatus).Outcome != ctl.Done && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	return child
}

// A forked child that only waits is not recorded.
func TestAskedOfChild(t *testing.T) {
	w := work(t, withEpochs, "1", "child")
	child := forkedChild(t, w)
	if a := w.asks(child, ctl.DoRollback); a.Outcome != ctl.Unsupported || !strings.Contains(a.Why, "made by fork") {
		t.Errorf("%+v", a)
	}
	if a := w.asks(child, ctl.DoStatus); a.Outcome != ctl.Done || a.Status.PID != child || a.Status.Processes != 2 {
		t.Errorf("%+v %+v", a, a.Status)
	}
	w.end()
}

// One that comes out of its waits is, as its parent; once there was nothing to ask of any.
func TestAskedOfRecordedChild(t *testing.T) {
	w := work(t, withEpochs, "1", "polling child")
	child := forkedChild(t, w)
	w.asks(w.prog, ctl.DoCheckpoint) // the epoch of the fork cannot be executed again
	for _, pid := range []int{child, w.prog, child} {
		a := w.asks(pid, ctl.DoRollback)
		if a.Outcome != ctl.Done || a.Epoch == nil || (a.Epoch.Verdict != "identical" && a.Epoch.Verdict != "stack") {
			t.Errorf("%+v %+v", a, a.Epoch)
		}
	}
	if a := w.asks(child, ctl.DoCheckpoint); a.Outcome != ctl.Done {
		t.Errorf("%+v", a)
	}
	if a := w.asks(child, ctl.DoStatus); a.Outcome != ctl.Done || a.Status.Threads != 1 || a.Status.Epochs == nil || !a.Status.Epochs.Recording {
		t.Errorf("%+v %+v", a, a.Status)
	}
	w.end()
}

// A program that is stopped, and with it ripstop, answers when it goes on; that is said at once, and nothing waits for it.
func TestAskedWhileStopped(t *testing.T) {
	w := work(t, withEpochs, "2")
	if err := syscall.Kill(w.prog, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, stopped, err := agent.Tasks(w.pid); stopped || err != nil || time.Now().After(end) { // ripstop stops like its program
			break
		}
	}
	for _, do := range []string{ctl.DoRollback, ctl.DoStatus} {
		if a := w.asks(w.prog, do); a.Outcome != ctl.CouldNot || !strings.Contains(a.Why, "stopped") {
			t.Errorf("%+v", a)
		}
	}
	syscall.Kill(w.pid, syscall.SIGCONT)
	if a := w.asks(w.prog, ctl.DoStatus); a.Outcome != ctl.Done {
		t.Errorf("%+v", a)
	}
	w.end()
}

// The program goes on when ripstop was killed, and nobody answers for it.
func TestAskedOfTheKilled(t *testing.T) {
	w := work(t, withEpochs, "2")
	w.cmd.Process.Kill()
	w.cmd.Process.Wait()
	if a := w.asks(w.prog, ctl.DoRollback); a.Outcome != ctl.Absent || !strings.Contains(a.Why, "is not watched") {
		t.Errorf("%+v", a)
	}
	w.in.Close()
	if rest, err := io.ReadAll(w.out); string(rest) != "agreed right 0\n" {
		t.Errorf("%q, %v", rest, err)
	}
	w.cmd.Wait()
}

// What was found is in the report while the program still runs, and in the one at the end.
func TestAskedForReport(t *testing.T) {
	w := work(t, nil, "1", "inverted")
	if a := w.asks(w.prog, ctl.DoStatus); a.Outcome != ctl.Done || a.Status.Findings != 1 {
		t.Errorf("%+v %+v", a, a.Status)
	}
	a := w.asks(w.prog, ctl.DoReport)
	if a.Outcome != ctl.Done || a.Exit != 66 || !strings.Contains(string(a.Report), `"rule":"lock-order-inversion"`) || !strings.Contains(string(a.Report), `"type":"summary","findings":1`) {
		t.Errorf("%+v %s", a, a.Report)
	}
	if a := ctl.Ask(ctl.Question{PID: w.pid, Do: ctl.DoReport, Format: "nonsense", WithinMS: 60_000}); a.Outcome != ctl.CouldNot {
		t.Errorf("%+v", a)
	}
	w.in.Close()
	rest, _ := io.ReadAll(w.out)
	w.cmd.Wait()
	if code := w.cmd.ProcessState.ExitCode(); code != 66 || string(rest) != "agreed right 0\n" || len(summaries(w.errs.String())) != 1 {
		t.Errorf("status %d, %q; %s", code, rest, w.errs.String())
	}
}

// An end of the epoch that came while a crash was looked at, before it asked for its re-execution, left an epoch without the crash to be executed again, or was taken for the answer: no cause was told, and not that there was no re-execution (TestJudgedStale/crash
// failed so once in 13). Here ends are asked for all the time, and the look at all blocks takes longer than one.
func TestCrashedAndAsked(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		cmd := command(t, withEpochs, path("laden"))
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		over, asked := make(chan bool), make(chan bool)
		go func() {
			defer close(asked)
			for {
				select {
				case <-over:
					return
				default:
					ctl.Ask(ctl.Question{PID: cmd.Process.Pid, Do: ctl.DoCheckpoint, Format: "json", WithinMS: 60_000})
				}
			}
		}()
		cmd.Wait()
		close(over)
		<-asked
		if !strings.Contains(errs.String(), "The crash was reproduced: ") || !strings.Contains(errs.String(), "in fall\n") {
			t.Error(errs.String())
		}
	}
}
