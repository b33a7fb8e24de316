package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// kernels are those of testdata/kernels.c, with how often each is repeated to take some tenths of a second natively.
var kernels = []struct{ name, repeats string }{
	{"nbody", "12"}, {"lu", "100"}, {"fft", "200"}, {"radix", "80"}, {"stencil", "100"}, {"montecarlo", "40"}, {"kmeans", "50"}, {"wordcount", "100"}, {"pipeline", "50"}, {"hashtable", "15"},
}

// races measures what finding data races costs: CPU time of parallel kernels under `run --full`, built with gcc's and clang's ThreadSanitizer, and under Helgrind, against native. What is not
// installed is left out, and said.
func (b *bench) races(ctx context.Context) error {
	if !b.only.MatchString("races") {
		return nil
	}
	dir, err := os.MkdirTemp("/tmp", "rsbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	native := filepath.Join(dir, "kernels")
	compile := func(cc, out string, flags ...string) error {
		args := append([]string{"-O2", "-g", "-pthread", "-o", out}, append(flags, "bench/testdata/kernels.c", "-lm")...)
		if text, err := exec.CommandContext(ctx, cc, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cc, err, text)
		}
		return nil
	}
	if err := compile("gcc", native); err != nil {
		return err
	}
	tools := []struct {
		name string
		args []string
	}{{"run --full", []string{b.ripstop, "run", "--full", "--", native}}}
	for _, cc := range []string{"gcc", "clang"} {
		built := filepath.Join(dir, cc)
		if err := compile(cc, built, "-fsanitize=thread"); err != nil {
			fmt.Printf("%s's ThreadSanitizer: left out: %.200v\n", cc, err)
			continue
		}
		tools = append(tools, struct {
			name string
			args []string
		}{cc + " TSan", []string{"setarch", "-R", built}}) // it needs the address space as it was before Linux 6.9
	}
	if _, err := exec.LookPath("valgrind"); err != nil {
		fmt.Println("Helgrind: left out: valgrind is not installed")
	} else {
		tools = append(tools, struct {
			name string
			args []string
		}{"Helgrind", []string{"valgrind", "-q", "--tool=helgrind", native}})
	}
	fmt.Printf("\n%-16s", "races, 2 threads")
	for _, t := range tools {
		fmt.Printf(" %-22s", t.name)
	}
	fmt.Println("CPU against native (min–max)")
	logs := make([]float64, len(tools))
	for _, k := range kernels {
		var base []float64
		all := make([][]float64, len(tools))
		for range b.rounds {
			cpu, err := cpuOf(ctx, native, k.name, "2", k.repeats)
			if err != nil {
				return err
			}
			base = append(base, cpu)
			for i, t := range tools {
				if cpu, err = cpuOf(ctx, t.args[0], append(t.args[1:len(t.args):len(t.args)], k.name, "2", k.repeats)...); err != nil {
					return err
				}
				all[i] = append(all[i], cpu)
			}
		}
		fmt.Printf("%-16s", k.name)
		for i := range tools {
			list := ratios(all[i], base)
			logs[i] += math.Log(median(list))
			fmt.Printf(" %-22s", spread(list))
		}
		fmt.Println()
	}
	fmt.Printf("%-16s", "geometric mean")
	for i := range tools {
		fmt.Printf(" %-22s", fmt.Sprintf("%.2f", math.Exp(logs[i]/float64(len(kernels)))))
	}
	fmt.Println()
	return nil
}

// cpuOf runs a command and gives its CPU time in seconds. That a tool reports something (exit status 66) is said, and no error.
func cpuOf(ctx context.Context, name string, args ...string) (float64, error) {
	ctx, stop := context.WithTimeout(ctx, 15*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, name, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 66 {
		fmt.Printf("%s %v: reports races\n", name, args)
		err = nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s %v: %w", name, args, err)
	}
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), nil
}
