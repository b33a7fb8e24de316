package verdict

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Variant is a way to build a program.
type Variant struct {
	Name     string
	Optimise string // level, as in -O2
	Stripped bool   // without symbols and debug information
}

// Variants are those that every program is built in.
var Variants = []Variant{
	{Name: "O0", Optimise: "0"},
	{Name: "O2", Optimise: "2"},
	{Name: "O2-stripped", Optimise: "2", Stripped: true},
}

// Compiler is the compiler of the program's language.
func (p *Program) Compiler() string {
	switch filepath.Ext(p.Name) {
	case ".cc":
		return "g++"
	case ".rs":
		return "rustc"
	}
	return "gcc"
}

// Compile builds the program, and its library if it has one, in dir, and returns the program's path. The library's is that and ".so".
func (p *Program) Compile(v Variant, dir string) (string, error) {
	exe := filepath.Join(dir, strings.TrimSuffix(p.Name, filepath.Ext(p.Name)))
	var args []string
	switch p.Compiler() {
	case "gcc":
		args = []string{"-std=gnu11", "-Wall", "-Werror", "-pthread", "-g", "-O" + v.Optimise}
	case "g++":
		args = []string{"-std=c++20", "-Wall", "-Werror", "-pthread", "-g", "-O" + v.Optimise}
	case "rustc":
		args = []string{"--edition=2021", "-Dwarnings", "-g", "-Copt-level=" + v.Optimise}
	}
	args = append(args, p.Build...)
	outputs := [][]string{{"-o", exe}}
	if p.Library {
		outputs = append(outputs, []string{"-shared", "-fPIC", "-DLIBRARY", "-o", exe + ".so"})
	}
	for _, out := range outputs {
		if err := command(p.Compiler(), append(append(append([]string{}, args...), out...), p.Path)...); err != nil {
			return "", err
		}
		if v.Stripped {
			if err := command("strip", out[len(out)-1]); err != nil {
				return "", err
			}
		}
	}
	return exe, nil
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
