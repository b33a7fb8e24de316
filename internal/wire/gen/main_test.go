package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The generated files are what the tables say today.
func TestUpToDate(t *testing.T) {
	dir := root(t)
	files, err := generate(dir)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run go generate ./internal/wire", path)
		}
	}
}

// A page without the markers is refused: it would lose its tables silently.
func TestDocsNeedMarkers(t *testing.T) {
	for _, page := range []string{"# Formats\n", docsBegin, docsEnd} {
		if _, err := docsFile([]byte(page)); err == nil {
			t.Errorf("page %q: no error", page)
		}
	}
}

// layouts has the Go struct of every layout.
var layouts = map[string]any{
	"Ctl": wire.Ctl{}, "Config": wire.Config{}, "Lane": wire.Lane{}, "HeldSlot": wire.HeldSlot{}, "Moment": wire.Moment{}, "Slot": wire.Slot{}, "Region": wire.Region{}, "GuardDebug": wire.GuardDebug{}, "GuardOutside": wire.GuardOutside{},
	"Hello": wire.Hello{}, "Welcome": wire.Welcome{}, "ModuleRequest": wire.ModuleRequest{}, "Tables": wire.Tables{},
	"UnwindHeader": wire.UnwindHeader{}, "UnwindRow": wire.UnwindRow{}, "UnwindRule": wire.UnwindRule{},
	"PatchOp": wire.PatchOp{}, "PatchPage": wire.PatchPage{}, "PatchCover": wire.PatchCover{},
	"TrampolineRun": wire.TrampolineRun{}, "Trampoline": wire.Trampoline{}, "TrampolineState": wire.TrampolineState{}, "TrampolineMove": wire.TrampolineMove{}, "CallCount": wire.CallCount{}, "Calls": wire.Calls{},
}

// What the C compiler makes of the structures and constants of zz_wire.h is, to the byte, what Go makes of them; and every writer of
// the header puts its fields where the table says.
func TestCAndGoAgree(t *testing.T) {
	var c, want strings.Builder
	say := func(expr string, value uint64) {
		fmt.Fprintf(&c, "\tsay(%q, (unsigned long long)(%s));\n", expr, expr)
		fmt.Fprintf(&want, "%s %d\n", expr, value)
	}
	say("RS_WIRE_VERSION", wire.Version)
	say("RS_MAGIC", wire.Magic)
	say("RS_MAX_RECORD_WORDS", wire.MaxRecordWords)
	say("RS_THREADS_PER_REGION", wire.ThreadsPerRegion)
	say("RS_HELD_IN_SLOT", wire.HeldInSlot)
	say("RS_MOMENT_WORDS", wire.MomentWords)
	say("RS_PATCH_OPS", wire.PatchOps)
	say("RS_PATCH_BYTES", wire.PatchBytes)
	say("RS_PATCH_RUNS", wire.PatchRuns)
	say("RS_PATCH_POINTERS", wire.PatchPointers)
	say("RS_PATCH_SAVES", wire.PatchSaves)
	say("RS_STACK_LATER", wire.StackLater)
	say("RS_ROW_START", wire.RowStart)
	say("RS_FD_PLACE", wire.FdPlace)
	say("RS_FD_PLACES", wire.FdPlaces)
	say("RS_MAX_MODULES", wire.MaxModules)
	say("RS_MAX_LOST", wire.MaxLost)
	say("RS_CALL_ROWS", wire.CallRows)
	for _, e := range wire.Enums {
		for _, v := range e.Values {
			say(strings.ToUpper("RS_"+snake(e.Name)+"_"+snake(v.Name)), uint64(v.V))
		}
	}
	for _, l := range wire.Layouts {
		v, ok := layouts[l.Name]
		if !ok {
			t.Fatalf("layout %s is not in this test's list", l.Name)
		}
		gt := reflect.TypeOf(v)
		name := "struct rs_" + snake(l.Name)
		say("sizeof("+name+")", uint64(gt.Size()))
		for _, m := range l.Fields {
			f, ok := gt.FieldByName(m.Name)
			if !ok {
				t.Fatalf("Go's %s has no %s", l.Name, m.Name)
			}
			say(fmt.Sprintf("offsetof(%s, %s)", name, snake(m.Name)), uint64(f.Offset))
			say(fmt.Sprintf("sizeof(((%s *)0)->%s)", name, snake(m.Name)), uint64(f.Type.Size()))
		}
	}
	for i := range wire.Events {
		writer(&c, say, &wire.Events[i])
	}
	got := runC(t, "#include <stdio.h>\n#include <string.h>\n#include \"zz_wire.h\"\n"+
		"static void say(const char *what, unsigned long long v) { printf(\"%s %llu\\n\", what, v); }\n"+
		"int main(void)\n{\n\tuint64_t w[64];\n"+c.String()+"\treturn 0;\n}\n")
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want.String(), "\n")
	if len(gotLines) != len(wantLines) || len(wantLines) < 300 {
		t.Fatalf("%d lines from C, %d expected", len(gotLines), len(wantLines))
	}
	for i := range wantLines {
		if gotLines[i] != wantLines[i] {
			t.Errorf("C says %q, Go %q", gotLines[i], wantLines[i])
		}
	}
}

// writer has the event's C writer fill w from arguments whose bytes all differ, and compares word by word with the table's places.
func writer(c *strings.Builder, say func(string, uint64), e *wire.Spec) {
	places, words := e.Places()
	expect := make([]uint64, words)
	var args []string
	for i, f := range e.Fields {
		v := 0x8182838485868788 + uint64(i)*0x0909090909090909
		if f.Width < 64 {
			v &= 1<<f.Width - 1
		}
		args = append(args, fmt.Sprintf("%#xull", v))
		expect[places[i].Word] |= v << places[i].Shift
	}
	if e.Tail != wire.NoTail {
		args = append(args, "77")
		expect[words-1] = 77
	}
	fmt.Fprintf(c, "\tmemset(w, 0, sizeof w);\n\trs_put_%s(%s);\n", snake(e.Name), strings.Join(slices.Insert(args, 0, "w"), ", "))
	say("RS_EV_"+strings.ToUpper(snake(e.Name)), uint64(e.ID))
	say("RS_"+strings.ToUpper(snake(e.Name))+"_WORDS", uint64(words))
	for i := 1; i < words; i++ {
		say(fmt.Sprintf("w[%d]", i), expect[i])
	}
}

// runC compiles and runs a program that may include zz_wire.h, and gives its output. A machine without gcc fails the test: the agent
// cannot be built there either.
func runC(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "t.c"), filepath.Join(dir, "t")
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	include := filepath.Join(root(t), "internal/agent/c")
	if out, err := exec.Command("gcc", "-std=gnu11", "-Wall", "-Werror", "-I", include, "-o", bin, src).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
