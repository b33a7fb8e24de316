package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/calls"
	"github.com/ripstop/ripstop/internal/run"
	"github.com/ripstop/ripstop/internal/syscalls"
)

func TestSyscallsFlags(t *testing.T) {
	defer func(before jobTable) { jobs = before }(jobs)
	var got *calls.Options
	jobs.syscalls = func(o *calls.Options) (int, error) { got = o; return 7, nil }
	for args, want := range map[string]calls.Options{
		"-- prog -x": {Program: []string{"prog", "-x"}, Format: "text", Order: syscalls.ByTime, Detail: syscalls.Total, Follow: true, WaitFor: run.Main},
		"--format json -o f --sort errors --by thread --follow no --wait-for all --stats prog": {Program: []string{"prog"}, Format: "json", Output: "f",
			Order: syscalls.ByErrors, Detail: syscalls.PerThread, WaitFor: run.All, Stats: true},
	} {
		want.Version = versionString()
		if _, stderr, code := ripstop(append([]string{"syscalls"}, strings.Fields(args)...)...); code != 7 || stderr != "" || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: exit %d, %q, %+v, want %+v", args, code, stderr, *got, want)
		}
	}
	for args, want := range map[string]string{"": "no program to run", "--sort size prog": "it takes one of time, calls, errors, name", "--by cpu prog": "it takes one of total"} {
		if _, stderr, code := ripstop(append([]string{"syscalls"}, strings.Fields(args)...)...); code != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, %q, want %q", args, code, stderr, want)
		}
	}
}
