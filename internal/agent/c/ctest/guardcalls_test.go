package ctest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/wire"
)

// guardCalls makes guard_calls. What it returns runs a part of it in a directory of its own, with standard input of a file there.
func guardCalls(t *testing.T) func(t *testing.T, part string) (string, result) {
	t.Helper()
	lib, preload := preloadable(t)
	entries := guardEntries(t, lib, "begin", "checkpoint", "rollback", "sys_verdict")
	program := compile(t, "guard_calls.c", "-O2", "-ldl", "-DROW_CLOCK_GETTIME="+strconv.Itoa(wire.CallRows-8+int(wire.CallRowVdsoClockGettime)), "-DROW_GETTIMEOFDAY="+strconv.Itoa(wire.CallRows-8+int(wire.CallRowVdsoGettimeofday)))
	entries = append(entries, guardEntry(t, lib, "rs_vdso_hook"))
	var text strings.Builder
	for i := range 200 {
		text.WriteString(strconv.Itoa(i))
	}
	return func(t *testing.T, part string) (string, result) {
		t.Helper()
		dir := t.TempDir()
		for name, data := range map[string]string{"in": text.String(), "changed": text.String(), "stdin": text.String(), "in2": "what the other file has, which is something else"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		argv := append([]string{"/bin/sh", "-c", `exec "$@" <` + filepath.Join(dir, "stdin"), "sh", program, part, dir}, entries...)
		return dir, native(t, append(os.Environ(), "LD_PRELOAD="+preload), argv...)
	}
}

// A thread's system calls give the same in a re-execution, three times, and are not done twice: what was written is there once, the process outside has heard every message once.
func TestGuardCalls(t *testing.T) {
	run := guardCalls(t)
	for _, part := range []string{"files", "descriptors", "channels", "times", "mappings", "masks", "threads"} {
		t.Run(part, func(t *testing.T) {
			dir, got := run(t, part)
			want := "well 3\n"
			if part == "files" {
				want = "said once\n" + want
			}
			if got.stdout != want || got.stderr != "" || got.state != "exit status 0" {
				t.Errorf("%+v", got)
			}
			if part != "files" {
				return
			}
			for name, want := range map[string]string{"append": strings.Repeat("line\n", 20), "both": "what is here"} {
				if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
					t.Errorf("%s: %q, %v", name, data, err)
				}
			}
			if data, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || len(data) != 403 || string(data[15:200]) != strings.Repeat("0123456789", 20)[15:] || string(data[400:]) != "end" {
				t.Errorf("out: %q, %v", data, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "moved")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A re-execution that is another is told at the call: another call, argument, data, a file that somebody has changed. And what was read in an epoch is kept before it is overwritten (pwrite), or not overwritten in it (O_TRUNC).
func TestGuardCallsDiverge(t *testing.T) {
	run := guardCalls(t)
	for part, want := range map[string]string{
		"changed": "why 10 event 2, done again 2\n", "number": "why 7 event 0, done again 0\n", "argument": "why 8 event 1, done again 1\n", "data": "why 10 event 2, done again 2\n", "words": "why 10 event 2, done again 2\n", "blocks": "why 10 event 2, done again 2\n", "bit": "why 10 event 2, done again 2\n",
		"overwritten": "ended 0, 0, 1, lost 5\n",
	} {
		t.Run(part, func(t *testing.T) {
			if _, got := run(t, part); !strings.HasPrefix(got.stdout, want) || got.stderr != "" || got.state != "exit status 0" {
				t.Errorf("%+v, want %q", got, want)
			}
		})
	}
}
