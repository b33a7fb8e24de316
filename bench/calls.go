package main

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"
	"strconv"
)

//go:embed testdata/calls.c
var callsSource []byte

// goalCall is what a patched system call may take more, in ns (issue 3).
const goalCall = 60

// calls measures system calls natively, counted by ripstop syscalls, and by strace -c.
func (b *bench) calls(ctx context.Context) error {
	first := true
	var prog string
	for _, c := range []struct {
		kind      string
		n, traced int
	}{{"getppid", 800_000, 8000}, {"syscall()", 800_000, 8000}, {"close(-1)", 800_000, 8000}, {"clock_gettime", 2_000_000, 2_000_000}} {
		if !b.only.MatchString("system call " + c.kind) {
			continue
		}
		if first {
			var err error
			if prog, err = b.compile("calls", callsSource); err != nil {
				return err
			}
			fmt.Printf("\n%-14s %11s  %-26s %s\n", "system call", "native", "ripstop syscalls", "strace -f -c")
			first = false
		}
		null := filepath.Join(b.shared, "calls.out")
		var ns [3][]float64
		for range b.rounds {
			for i, way := range [][]string{nil, {b.ripstop, "syscalls", "-o", null, "--"}, {"strace", "-f", "-c", "-o", null, "--"}} {
				n := c.n
				if i == 2 {
					n = c.traced
				}
				v, err := microOnce(ctx, append(way, prog, c.kind, strconv.Itoa(n)))
				if err != nil {
					return err
				}
				ns[i] = append(ns[i], v)
			}
		}
		native, ours, theirs := median(ns[0]), median(ns[1]), median(ns[2])
		fmt.Printf("%-14s %8.1f ns  %-26s %+.0f ns %.1f×\n", c.kind, native,
			fmt.Sprintf("%+.1f ns %.2f× %s", ours-native, ours/native, b.verdict(ours-native, goalCall)), theirs-native, theirs/native)
	}
	return nil
}
