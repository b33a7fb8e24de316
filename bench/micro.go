package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

//go:embed testdata/micro.c
var microSource []byte

//go:embed testdata/threads.c
var threadsSource []byte

// The goals of issue 2.
const (
	goalPairRatio  = 1.5 // lock and unlock without stacks
	goalPairStacks = 300 // ns a pair with stacks of 16 frames
	goalMemory     = 32  // MiB, and one more for each thread
)

func (b *bench) compile(name string, source []byte) (string, error) {
	path := filepath.Join(b.shared, name)
	if err := os.WriteFile(path+".c", source, 0o644); err != nil {
		return "", err
	}
	if out, err := exec.Command("gcc", "-O2", "-g", "-Wall", "-pthread", "-o", path, path+".c").CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// micro measures loops of one operation: ns natively, under run without and with stacks of 16 frames, and under record.
func (b *bench) micro(ctx context.Context) error {
	prog, err := b.compile("micro", microSource)
	if err != nil {
		return err
	}
	loops := []struct {
		kind            string
		n               int
		ratio, absolute float64 // goals: run without stacks as a ratio, run with 16 frames in ns
	}{
		{kind: "lock", n: 400_000, ratio: goalPairRatio},
		{kind: "lock-single", n: 400_000, ratio: goalPairRatio},
		{kind: "lock-deep", n: 200_000, absolute: goalPairStacks},
		{kind: "nested-deep", n: 100_000},
		{kind: "rdlock", n: 200_000},
		{kind: "signal", n: 100_000},
		{kind: "malloc", n: 200_000},
		{kind: "malloc-deep", n: 200_000},
		{kind: "create-join", n: 300},
		{kind: "contended", n: 50_000},
	}
	first := true
	for _, l := range loops {
		if !b.only.MatchString(l.kind) {
			continue
		}
		if first {
			fmt.Printf("%-12s %11s  %-22s %-22s %-18s\n", "loop", "native", "run, no stacks", "run, 16 frames", "record, 16 frames")
			first = false
		}
		ways := [][]string{
			nil,
			{b.ripstop, "run", "--stack-depth", "0", "--"},
			{b.ripstop, "run", "--stack-depth", "16", "--"},
			{b.ripstop, "record", "--stack-depth", "16", "-o", filepath.Join(b.shared, "trace"), "--"},
		}
		ns := make([][]float64, len(ways))
		for range b.rounds {
			for i, way := range ways {
				value, err := microOnce(ctx, append(way, prog, l.kind, strconv.Itoa(l.n)))
				if err != nil {
					return err
				}
				ns[i] = append(ns[i], value)
			}
		}
		m := []float64{median(ns[0]), median(ns[1]), median(ns[2]), median(ns[3])}
		fmt.Printf("%-12s %8.1f ns  %-22s %-22s %-18s\n", l.kind, m[0],
			fmt.Sprintf("%.1f ns %.2f× %s", m[1], m[1]/m[0], b.verdict(m[1]/m[0], l.ratio)),
			fmt.Sprintf("%.1f ns %.2f× %s", m[2], m[2]/m[0], b.verdict(m[2], l.absolute)),
			fmt.Sprintf("%.1f ns %.2f×", m[3], m[3]/m[0]))
	}
	return nil
}

func microOnce(ctx context.Context, argv []string) (float64, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

var statsMemory = regexp.MustCompile(`agent memory, largest process:? +(\d+) KiB private, (\d+) KiB shared`)

// memory asks --stats what the agent took in processes of few and many threads.
func (b *bench) memory(ctx context.Context) error {
	if !b.only.MatchString("memory") {
		return nil
	}
	prog, err := b.compile("threads", threadsSource)
	if err != nil {
		return err
	}
	fmt.Printf("\n%-12s %-14s %s\n", "threads", "agent memory", "goal")
	for _, n := range []int{1, 16, 64, 256} {
		cmd := exec.CommandContext(ctx, b.ripstop, "run", "--stats", "--", prog, strconv.Itoa(n))
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
		m := statsMemory.FindSubmatch(out)
		if m == nil {
			return fmt.Errorf("%v: no agent memory in\n%s", cmd, out)
		}
		private, _ := strconv.Atoi(string(m[1]))
		shared, _ := strconv.Atoi(string(m[2]))
		mib, goal := float64(private+shared)/1024, float64(goalMemory+n+1)
		fmt.Printf("%-12d %7.1f MiB    %.0f MiB %s\n", n, mib, goal, b.verdict(mib, goal))
	}
	return nil
}
