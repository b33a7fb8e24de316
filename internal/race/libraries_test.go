package race

import (
	"os/exec"
	"path/filepath"
	"strings"
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
			judgeTold(t, source, recordBy(t, "full", runner, exe), "before_opening", "in_initialiser") // there libraries are patched behind their initialisers
		}
	}
}

// Code of a library that dlopen loads was patched behind its initialisers, so what these did was not told; and a call of dlopen or dlclose was in no order with another one for which it waited.
func TestFullOpening(t *testing.T) {
	t.Parallel()
	runner, _ := runnerAndSources(t)
	const source = "testdata/opening/opening.cc"
	libraries := map[string][]string{"slow": nil, "quick": nil, "nests": nil, "base": nil, "needs": {"-lbase"}, "thread": nil, "lacks": nil, "text": {"-Wl,-z,notext"}, "shown": nil, "lasts": nil}
	for _, level := range []string{"-O0", "-O2"} {
		dir := t.TempDir()
		exe := filepath.Join(dir, "opening")
		compile := func(args ...string) {
			t.Helper()
			common := []string{"-g", level, "-Wall", "-Wextra", "-Werror", "-pthread", source, "-L" + dir, "-Wl,-rpath," + dir}
			if out, err := exec.Command("g++", append(common, args...)...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		library := func(name string) {
			compile(append([]string{"-DLIBRARY=" + strings.ToUpper(name), "-shared", "-fPIC", "-o", filepath.Join(dir, "lib"+name+".so")}, libraries[name]...)...)
		}
		library("base")
		for name := range libraries {
			library(name)
		}
		compile("-DDIR=\""+dir+"\"", "-rdynamic", "-o", exe)
		for range rounds {
			judge(t, source, runFull(t, runner, exe), false)
		}
	}
}
