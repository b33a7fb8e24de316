package drive

import (
	"bytes"
	"context"
	"regexp"
)

var (
	pythonCounts = regexp.MustCompile(`(?m)^(Ran \d+ tests?|OK.*|FAILED.*|Tests? result: .*|Result: .*|(?:ERROR|FAIL): .*|\d+ tests? (?:OK|failed).*)$`)
	pythonTimes  = regexp.MustCompile(` in [0-9.]+s`)
)

// python runs test modules of Python's own suite. What counts is which tests ran and how they ended; the order of lines and
// the times in its output differ natively.
func (j *Job) python(ctx context.Context, args ...string) (Outcome, error) {
	out, err := j.batch(ctx, "", "/usr/bin/python3", append([]string{"-m", "test", "-v"}, args...)...)
	if err != nil {
		return out, err
	}
	text := append(pythonTimes.ReplaceAll(out.Stdout, nil), out.Stderr...)
	for _, line := range pythonCounts.FindAll(text, -1) {
		out.Facts = append(out.Facts, string(bytes.TrimSpace(line)))
	}
	// With exit status 0 there is nothing to look at; else the output says which test failed and how.
	if out.Exit == 0 {
		out.Stdout, out.Stderr = nil, nil
	}
	return out, nil
}

func pythonThreading(ctx context.Context, j *Job) (Outcome, error) {
	return j.python(ctx, "test_threading", "test_thread")
}

func pythonFutures(ctx context.Context, j *Job) (Outcome, error) {
	if j.Size == Large {
		return j.python(ctx, "test_concurrent_futures")
	}
	return j.python(ctx, "-m", "FutureTests", "-m", "ThreadPoolExecutorTest", "-m", "ThreadPoolShutdownTest",
		"-m", "ThreadPool*InitializerTest", "-m", "ProcessPoolForkInitializerTest", "test_concurrent_futures")
}
