package race

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Races in the variables of libraries, which the program is linked with or opens, and what their initialisers and finishers do: no program had any.
func TestFullLibraries(t *testing.T) {
	t.Parallel()
	runner, _ := runnerAndSources(t)
	const source = "testdata/libraries/libraries.c"
	for _, level := range []string{"-O0", "-O2"} {
		dir := t.TempDir()
		linked, opened, exe := filepath.Join(dir, "liblinked.so"), filepath.Join(dir, "libopened.so"), filepath.Join(dir, "libraries")
		for _, args := range [][]string{
			{"-DLINKED", "-shared", "-fPIC", "-o", linked},
			{"-DOPENED", "-shared", "-fPIC", "-o", opened},
			{"-DNAME=\"" + opened + "\"", "-rdynamic", "-Wl,-z,now,-rpath," + dir, "-o", exe, linked},
		} {
			if out, err := exec.Command("gcc", append([]string{"-g", level, "-Wall", "-Wextra", "-Werror", "-pthread", source}, args...)...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		for range rounds {
			judge(t, source, runFull(t, runner, exe), false)
			judgeTold(t, source, recordBy(t, "full", runner, exe))
		}
	}
}
