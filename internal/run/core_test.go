package run

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// In a core dump gdb showed ?? below a thread's function and below every wait in an interposed function: the agent's library, whose frames come next,
// had been removed with the session. Given another copy (`ripstop agent`) it goes on.
func TestCoreDump(t *testing.T) {
	dir := t.TempDir()
	core := filepath.Join(dir, "core")
	// gdb under us makes the dump of a program under it: where the kernel would put one is the machine's business.
	gdb := []string{"gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off"}
	r := finish(t, command(t, nil, append(gdb[:len(gdb):len(gdb)], "-ex", "run", "-ex", "generate-core-file "+core, "--args", path("crash"))...))
	if _, err := os.Stat(core); err != nil {
		t.Fatalf("no core dump: %v\n%s%s", err, r.stdout, r.stderr)
	}
	lib, err := AgentLibrary()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "libripstop.so"), lib, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(gdb[0], append(gdb[1:len(gdb):len(gdb)], "-iex", "set solib-search-path "+dir, "-ex", "thread apply all backtrace", path("crash"), core)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`(?s)\n#0 [^\n]*inner .*\n#1 [^\n]* worker .*\n#2 [^\n]* thread_main .*\n#\d [^\n]*clone`,
		`\n#\d+ [^\n]* pthread_(create|join) [^\n]*\n#\d+ [^\n]* main `, // wherever the crash has overtaken it
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}
