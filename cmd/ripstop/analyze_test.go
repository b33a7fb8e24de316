package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/analyze"
	"github.com/ripstop/ripstop/internal/race"
	"github.com/ripstop/ripstop/internal/recover"
)

func TestAnalyzeFlags(t *testing.T) {
	defer func(before jobTable) { jobs = before }(jobs)
	var got *analyze.Options
	jobs.analyze = func(o *analyze.Options) (int, error) { got = o; return 66, nil }
	for args, want := range map[string]analyze.Options{
		"dir": {Dir: "dir", ExitCode: 66, MovAtomics: race.Report},
		"--jobs 3 --mov-atomics hide --memory assumed --stats --exit-code 7 dir": {Dir: "dir", ExitCode: 7, Jobs: 3, MovAtomics: race.Hide, Memory: recover.Assumed, Stats: true},
		"--memory=none dir": {Dir: "dir", ExitCode: 66, MovAtomics: race.Report, Memory: recover.None},
	} {
		_, stderr, code := ripstop(append([]string{"analyze"}, strings.Fields(args)...)...)
		if code != 66 || stderr != "" || got.Report.Default == nil || got.Report.Version != "1.2.3" {
			t.Errorf("%s: exit %d, %q, %+v", args, code, stderr, got)
			continue
		}
		want.Report = got.Report
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, want %+v", args, *got, want)
		}
	}
	t.Setenv(optionsVariable, "--format sarif=x --follow=no --jobs 2")
	if _, stderr, code := ripstop("analyze", "dir"); code != 66 || stderr != "" || got.Jobs != 2 || !reflect.DeepEqual(got.Report.Formats, []string{"sarif=x"}) {
		t.Errorf("from the environment: exit %d, %q, %+v", code, stderr, got)
	}
	t.Setenv(optionsVariable, "")
	for args, want := range map[string]string{
		"": "analyze: 0 arguments where one trace directory is wanted", "--jobs -1 dir": "it takes a number from 0", "--memory=all dir": "it takes one of proved, assumed, none",
		"--mov-atomics=no dir": "it takes one of report, hide", "a b": "2 arguments",
	} {
		if _, stderr, code := ripstop(append([]string{"analyze"}, strings.Fields(args)...)...); code != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, %q, want %q", args, code, stderr, want)
		}
	}
}

// A directory that is no trace is one clear error.
func TestAnalyzeNothing(t *testing.T) {
	if stdout, stderr, code := ripstop("analyze", t.TempDir()); code != exitFailed || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "ripstop: ") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}
