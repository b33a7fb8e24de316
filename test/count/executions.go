// Package count holds `ripstop count` against oracles that share nothing with it: qemu, which runs programs instruction by instruction in software, and the
// processor itself, stepped by ptrace. All three must count the same, instruction by instruction.
//
// What is compared is how often an instruction began to execute. A string instruction with a rep prefix executes once, however many iterations it has. One that
// faults has begun; if it is run again then, it begins again, but for page faults that the kernel settles, which nobody sees.
//
// A program must do the same each time: one thread, no clocks, no addresses in its decisions. qemu's processor is another one, and libraries that ask the
// processor what it can do choose other functions there: Tunables hides from glibc, in all runs, what the two do not have in common.
package count

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ripstop/ripstop/internal/image"
	"github.com/ripstop/ripstop/internal/tracee"
)

// Tunables is GLIBC_TUNABLES for all runs: with it libc's functions with several implementations are the same ones on qemu's processor as on one with AVX2 or better.
const Tunables = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ,-FSRM,-RTM,-Prefer_No_VZEROUPPER,-Fast_Rep_String,-Fast_Unaligned_Load,-Fast_Unaligned_Copy," +
	"-Prefer_PMINUB_for_stringop,-Avoid_Short_Distance_REP_MOVSB:glibc.cpu.x86_shared_cache_size=0x100000:glibc.cpu.x86_data_cache_size=0x8000:" +
	"glibc.cpu.x86_non_temporal_threshold=0xc0000:glibc.cpu.x86_rep_movsb_threshold=0x2000:glibc.cpu.x86_rep_stosb_threshold=0x800"

// Executions says how often instructions began: by the module's path and link-time address.
type Executions map[string]map[uint64]uint64

// A Program is a command line that ends by itself, with status 0.
type Program struct {
	Path  string // of the executable
	Args  []string
	Stdin string   // a file; empty: nothing to read
	Env   []string // besides PATH, LC_ALL and the tunables
	// Before makes the directory ready for a run; it may be nil.
	Before func(dir string) error
}

// Run runs the program in a directory, behind the words of before, and gives its standard output. An exit status other than 0 is an error.
func (p *Program) Run(ctx context.Context, dir string, before ...string) ([]byte, error) {
	cmd, done, err := p.command(ctx, dir, before...)
	if err != nil {
		return nil, err
	}
	defer done()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	return os.ReadFile(cmd.Stdout.(*os.File).Name())
}

// command prepares a run; done gives back its files. Input and output are regular files: what a program reads of a pipe at once, and whether it waits to write (xz then
// polls), depends on who is at the other end, and so would the counts.
func (p *Program) command(ctx context.Context, dir string, before ...string) (cmd *exec.Cmd, done func(), err error) {
	if p.Before != nil {
		if err := p.Before(dir); err != nil {
			return nil, nil, err
		}
	}
	argv := append(append(append([]string(nil), before...), p.Path), p.Args...)
	cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=/usr/bin:/bin", "LC_ALL=C", "GLIBC_TUNABLES=" + Tunables}, p.Env...)
	var in *os.File
	if p.Stdin != "" {
		if in, err = os.Open(p.Stdin); err != nil {
			return nil, nil, err
		}
		cmd.Stdin = in
	}
	out, err := os.CreateTemp("", "output")
	if err != nil {
		in.Close()
		return nil, nil, err
	}
	cmd.Stdout = out
	return cmd, func() {
		in.Close()
		out.Close()
		os.Remove(out.Name())
	}, nil
}

// BuildPlugin builds qemu's plugin into a directory and gives its path.
func BuildPlugin(dir string) (string, error) {
	plugin := filepath.Join(dir, "executions.so")
	out, err := exec.Command("gcc", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", "-o", plugin, "testdata/executions.c").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gcc testdata/executions.c: %w\n%s", err, out)
	}
	return plugin, nil
}

// Emulated runs the program under qemu and gives what ran and its standard output.
func Emulated(ctx context.Context, p *Program, dir, plugin string) (Executions, []byte, error) {
	f, err := os.CreateTemp("", "executions")
	if err != nil {
		return nil, nil, err
	}
	f.Close()
	defer os.Remove(f.Name())
	stdout, err := p.Run(ctx, dir, "qemu-x86_64", "-cpu", "max", "-plugin", plugin+",out="+f.Name())
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(f.Name())
	if err != nil {
		return nil, nil, err
	}
	x, err := parse(string(text))
	if err != nil {
		return nil, nil, fmt.Errorf("what the plugin wrote: %w", err)
	}
	return x, stdout, nil
}

// parse reads what the plugin writes.
func parse(text string) (Executions, error) {
	maps, list, ok := strings.Cut(text, "\n\n")
	if !ok {
		return nil, errors.New("no list of executions")
	}
	counts := map[uint64]uint64{}
	for line := range strings.Lines(list) {
		a, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		addr, err1 := strconv.ParseUint(a, 16, 64)
		count, err2 := strconv.ParseUint(n, 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		counts[addr] = count
	}
	mappings, err := tracee.ParseMaps(maps + "\n")
	if err != nil {
		return nil, err
	}
	return byModule(mappings, counts)
}

// byModule sorts addresses by module. What lies in no file is left out.
func byModule(mappings []tracee.Mapping, counts map[uint64]uint64) (Executions, error) {
	type loaded struct {
		path   string
		lo, hi uint64
		bias   uint64
	}
	var mods []loaded
	biases := map[string]uint64{}
	for _, m := range mappings {
		if !strings.HasPrefix(m.Path, "/") {
			continue
		}
		if m.Offset == 0 {
			img, err := image.Open(m.Path)
			if err != nil {
				continue // no program: data
			}
			for _, s := range img.Segments() {
				if s.Offset&^4095 == 0 {
					biases[m.Path] = uint64(m.Start) - s.Addr&^4095
					break
				}
			}
			img.Close()
		}
		bias, ok := biases[m.Path]
		if !ok {
			continue
		}
		mods = append(mods, loaded{m.Path, uint64(m.Start), uint64(m.End), bias})
	}
	x := Executions{}
	for a, n := range counts {
		for _, m := range mods {
			if a >= m.lo && a < m.hi {
				if x[m.path] == nil {
					x[m.path] = map[uint64]uint64{}
				}
				x[m.path][a-m.bias] += n
				break
			}
		}
	}
	return x, nil
}
