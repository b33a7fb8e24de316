package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ripstop/ripstop/internal/ctl"
)

// What ctl asks, how it shows the answers, and with what status it ends.
func TestCtl(t *testing.T) {
	t.Setenv(optionsVariable, "--format sarif=x --follow=no --timeout 7s")
	old := jobs
	defer func() { jobs = old }()
	log, events := uint64(4097), uint64(12)
	status := &ctl.Status{Program: "/bin/a\x1b[31mb", PID: 12, Ripstop: 11, Mode: "guard --epochs 10s", Since: time.Now(), Threads: 3, Processes: 2, Findings: 1, Suppressed: 2, Epochs: &ctl.Epochs{
		Recording: true, Begun: 4, Ended: 3, Lost: map[string]uint64{"a thread was made or ended": 1, "its log was full": 1}, LastLost: "its log was full", Verdicts: map[string]uint64{"identical": 1},
		PresentMS: 1.5, LogBytes: &log, Events: &events}}
	rollback := &ctl.Epoch{Number: 5, TookMS: 12.345, Events: 7, Verdict: "memory", Words: "memory differs", Tries: 2, Differs: &ctl.Difference{Event: 3, Thread: 12, Address: "0x10", Was: "0x1", Is: "0x2"}}
	for _, c := range []struct {
		args   []string
		answer ctl.Answer
		code   int
		out    string // parts of it, by |
		errs   string
	}{
		{[]string{"ctl", "12", "status"}, ctl.Answer{Outcome: ctl.Done, Status: status}, 0,
			"program         /bin/a?[31mb (pid 12)\nripstop         guard --epochs 10s (pid 11)\n|threads         3\nprocesses       2 are watched\nfindings        1, 2 suppressed\nepochs          4 begun, 3 ended, 2 of them lost\n" +
				"  lost          1: a thread was made or ended\n  lost          1: its log was full (the last one)\nexecuted again  1: identical\npresent epoch   for 1.5ms, 12 events, log of 5 KiB\n", ""},
		{[]string{"ctl", "12", "rollback"}, ctl.Answer{Outcome: ctl.Done, Epoch: rollback}, 0,
			"rolled back and executed again 2 times, 7 events, in 12.35ms: memory differs\nthe first difference: thread 12, event 3, address 0x10: 0x1, then 0x2\nepoch 5 has begun\n", ""},
		{[]string{"ctl", "12", "checkpoint"}, ctl.Answer{Outcome: ctl.Done, Epoch: &ctl.Epoch{Number: 2, TookMS: 1, Events: 7}}, 0, "epoch 2 has begun; the end of the one before (7 events) took 1ms\n", ""},
		{[]string{"ctl", "12", "report", "--format", "sarif"}, ctl.Answer{Outcome: ctl.Done, Exit: 66, Report: []byte("found\n")}, 66, "found\n", ""},
		{[]string{"ctl", "12", "report"}, ctl.Answer{Outcome: ctl.Done}, 0, "", "ripstop: nothing was found so far\n"},
		{[]string{"ctl", "12", "rollback"}, ctl.No(ctl.Unsupported, "process 12: guard records no epochs: no rollback"), 125, "", "ripstop: process 12: guard records no epochs: no rollback\n"},
	} {
		var asked ctl.Question
		jobs.ctl = func(q ctl.Question) ctl.Answer { asked = q; return c.answer }
		stdout, stderr, code := ripstop(c.args...)
		if code != c.code || stderr != c.errs || asked.PID != 12 || asked.Do != c.args[2] || asked.WithinMS != 7000 {
			t.Errorf("%v: exit %d, %q, asked %+v", c.args, code, stderr, asked)
		}
		for _, part := range strings.Split(c.out, "|") {
			if !strings.Contains(stdout, part) || c.out == "" && stdout != "" {
				t.Errorf("%v: %s\nlacks %s", c.args, stdout, part)
			}
		}
	}
	jobs.ctl = func(ctl.Question) ctl.Answer { return ctl.Answer{Outcome: ctl.Done, Epoch: rollback} }
	stdout, _, _ := ripstop("ctl", "--format=json", "12", "rollback")
	var got map[string]any
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got["type"] != "rollback" || got["verdict"] != "memory" || got["number"] != 5.0 {
		t.Errorf("%v: %s", err, stdout)
	}
}
