package run

import (
	"os/exec"
	"testing"
	"time"
)

// Where all accesses are told the engine is asked inside dlopen, before initialisers run, and threads that open libraries wait for each other outside of ld.so. An initialiser may leave dlopen, fork, end its thread or the process, or open what another thread waits for: all is as natively, and nobody waits who natively need not.
func TestOpens(t *testing.T) {
	for _, what := range []string{"abort", "crash", "exit", "fork", "handler", "jump", "Jump", "mask", "open", "pthread_exit", "system", "thread", "x-throw"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			args := []string{what, path("libopens.so"), path("libopens2.so")}
			native := finish(t, exec.Command(path("opens"), args...))
			began := time.Now()
			r := finish(t, command(t, map[string]any{"Full": true, "ExitCode": 0, "Follow": true}, append([]string{path("opens")}, args...)...))
			if r.code != native.code || r.signal != native.signal || r.stdout != native.stdout {
				t.Errorf("%+v\nnatively %+v", r, native)
			}
			t.Log(time.Since(began))
		})
	}
}
