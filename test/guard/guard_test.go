// Package guard holds `ripstop guard` (bin/ripstop, or what RIPSTOP_BINARY names) against small programs whose verdict stands in a comment, and against real programs, which it must not disturb.
package guard

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

var ripstop, bin string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "guardtest-")
	if err != nil {
		panic(err)
	}
	bin = dir
	os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	os.Unsetenv("RIPSTOP_OPTIONS")
	if ripstop = os.Getenv("RIPSTOP_BINARY"); ripstop == "" {
		ripstop, _ = filepath.Abs("../../bin/ripstop")
	}
	if _, err := os.Stat(ripstop); err != nil {
		fmt.Fprintln(os.Stderr, err, "- make builds it")
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func soak() bool { return os.Getenv("RIPSTOP_SOAK") != "" }

// statement is what a program's comment says of one case.
type statement struct {
	name, rule  string // rule "none": nothing is found
	size, first int    // -1: not stated
	frame, ends string
	and         string // rule of a second finding
}

var stated = regexp.MustCompile(`^// case (\w+): (\S+)(.*)$`)

func statements(t *testing.T, source string) (list []statement) {
	t.Helper()
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		m := stated.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		s := statement{name: m[1], rule: m[2], size: -1, first: -1}
		for _, word := range strings.Fields(m[3]) {
			key, value, _ := strings.Cut(word, "=")
			n, err := strconv.Atoi(value)
			switch key {
			case "size":
				s.size = n
			case "first":
				s.first = n
			case "frame":
				s.frame, err = value, nil
			case "and":
				s.and, err = value, nil
			case "ends":
				s.ends, err = value, nil
			default:
				t.Fatalf("%s: %q", line, word)
			}
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		list = append(list, s)
	}
	if len(list) == 0 {
		t.Fatal(source, "states nothing")
	}
	return list
}

type frame struct {
	Function, File string
	Line           int
}

type crash struct{ Signal, Said, Exception, What string }

type found struct {
	Type, Rule, Message string
	Crash               *crash
	Parts               []struct {
		Text  string
		Stack []frame
	}
	Objects []struct {
		Block     string
		Size      int
		Allocated []frame
	}
	Memory *struct{ Address, Was, Is string }
}

// findings of a report in JSON lines, which must be whole.
func findings(t *testing.T, report string) (list []found) {
	t.Helper()
	f, err := os.Open(report)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whole := false
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var line found
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			t.Fatalf("%v: %s", err, sc.Text())
		}
		whole = whole || line.Type == "summary"
		if line.Type == "finding" {
			list = append(list, line)
		}
	}
	if !whole {
		t.Fatal("the report has no summary")
	}
	return list
}

func (f *found) has(function string) bool {
	for _, p := range f.Parts {
		for _, fr := range p.Stack {
			if strings.TrimSuffix(fr.Function, "()") == function {
				return true
			}
		}
	}
	for _, o := range f.Objects {
		for _, fr := range o.Allocated {
			if strings.TrimSuffix(fr.Function, "()") == function {
				return true
			}
		}
	}
	return false
}

// wrong says in what the finding differs from the statement.
func (s *statement) wrong(f *found) string {
	switch {
	case f.Rule != s.rule:
		return "rule " + f.Rule
	case s.frame != "" && !f.has(s.frame):
		return "no frame of " + s.frame
	case s.size >= 0 && (len(f.Objects) == 0 || f.Objects[0].Size != s.size):
		return fmt.Sprintf("objects %+v", f.Objects)
	case s.first >= 0:
		if f.Memory == nil {
			return "no memory"
		}
		at, err := strconv.ParseUint(f.Memory.Address, 0, 64)
		block, err2 := strconv.ParseUint(f.Objects[0].Block, 0, 64)
		if err != nil || err2 != nil || at-block != uint64(s.first) || len(f.Memory.Is) == 0 || f.Memory.Is[:2] == f.Memory.Was[:2] {
			return fmt.Sprintf("memory %+v of block %s", *f.Memory, f.Objects[0].Block)
		}
	}
	return ""
}

type ended struct {
	out, errs []byte
	how       string // "exit 0", "SIGABRT"
}

func run(t *testing.T, cmd *exec.Cmd) ended {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	how := "exit 0"
	if errors.As(err, &exit) {
		how = fmt.Sprintf("exit %d", exit.ExitCode())
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			how = unix.SignalName(ws.Signal())
		}
	} else if err != nil {
		t.Fatal(err)
	}
	return ended{out.Bytes(), errs.Bytes(), how}
}

// Each case, with and without optimisation, has its stated finding and no other in every run, and ends as it would.
func TestPrograms(t *testing.T) {
	rounds := 1
	if soak() {
		rounds = 50
	}
	for source, compiler := range map[string]string{"testdata/heap.c": "gcc", "testdata/cxx.cc": "g++"} {
		for _, level := range []string{"-O0", "-O2"} {
			exe := filepath.Join(bin, filepath.Base(source)+level)
			if out, err := exec.Command(compiler, "-g", level, "-w", "-pthread", "-U_FORTIFY_SOURCE", "-o", exe, source).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, s := range statements(t, source) {
				t.Run(filepath.Base(source)+level+"/"+s.name, func(t *testing.T) {
					t.Parallel()
					for range rounds {
						s.check(t, exe)
					}
				})
			}
		}
	}
}

// check gives what was found, if that is to be one finding, and what was written.
func (s *statement) check(t *testing.T, exe string) (*found, ended) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report")
	got := run(t, exec.Command(ripstop, "guard", "--exit-code", "0", "--format", "json="+report, "--", exe, s.name))
	ends := s.ends
	if ends == "" {
		ends = "exit 0"
	}
	if got.how != ends || (ends == "exit 0" && string(got.out) != "ok\n") {
		t.Fatalf("it ended with %s, %q, %s", got.how, got.out, got.errs)
	}
	list := findings(t, report)
	if s.rule == "none" || s.rule == "missed" {
		if len(list) > 0 {
			t.Fatalf("found: %+v", list)
		}
		return nil, got
	}
	if s.and != "" && len(list) == 2 && list[1].Rule == s.and {
		list = list[:1]
	}
	if len(list) != 1 {
		t.Fatalf("%d findings: %+v", len(list), list)
	}
	if why := s.wrong(&list[0]); why != "" {
		t.Fatalf("%s: %+v", why, list[0])
	}
	return &list[0], got
}

// A block that a thread was giving back at its very end, while its process ended and all blocks were looked at, counted as one that was overwritten: a child of python's multiprocessing, whose queue's thread had just ended.
func TestEndingThreads(t *testing.T) {
	exe := filepath.Join(bin, "ending")
	if out, err := exec.Command("gcc", "-g", "-O1", "-pthread", "-o", exe, "testdata/ending.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for range 3 {
		if got := run(t, exec.Command(ripstop, "guard", "--", exe, "400", "6")); got.how != "exit 0" || len(got.out)+len(got.errs) != 0 {
			t.Fatalf("it ended with %s\n%s%s", got.how, got.out, got.errs)
		}
	}
}

// A program that died of a signal, of which no finding could be made, was reported as if nothing had been.
func TestDeath(t *testing.T) {
	exe := filepath.Join(bin, "deep")
	if out, err := exec.Command("gcc", "-g", "-O0", "-w", "-o", exe, "testdata/deep.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := run(t, exec.Command(ripstop, "guard", "--epochs", "0", "--", exe))
	if got.how != "SIGSEGV" || !bytes.Contains(got.errs, []byte("not seen: the program was ended by SIGSEGV")) {
		t.Errorf("it ended with %s\n%s", got.how, got.errs)
	}
}
