package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// fullBytes is what the programs of full get to compress.
const fullBytes = 1_000_000

// full measures what `record --sample=full` costs: CPU time of the program and ripstop against native, and the trace.
func (b *bench) full(ctx context.Context) error {
	if !b.only.MatchString("full") {
		return nil
	}
	if err := b.fullLoops(ctx); err != nil {
		return err
	}
	fmt.Printf("\n%-16s %-28s %s\n", "all accesses", "CPU against native (min–max)", "MB of trace")
	dir, err := os.MkdirTemp("/tmp", "rsbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	in := filepath.Join(dir, "in")
	if err := firstBytes(b.ripstop, in, fullBytes); err != nil {
		return err
	}
	for _, prog := range []string{"pigz", "pbzip2"} {
		var native, told []float64
		var size int64
		for range b.rounds {
			trace := filepath.Join(dir, "trace")
			for _, args := range [][]string{{prog, "-k", "-p2", "-c", in}, {b.ripstop, "record", "--sample=full", "-o", trace, "--", prog, "-k", "-p2", "-c", in}} {
				ctx, stop := context.WithTimeout(ctx, 15*time.Minute)
				cmd := exec.CommandContext(ctx, args[0], args[1:]...)
				err := cmd.Run()
				stop()
				if err != nil {
					return fmt.Errorf("%v: %w", args, err)
				}
				cpu := (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
				if args[0] == prog {
					native = append(native, cpu)
				} else {
					told = append(told, cpu)
				}
			}
			if size, err = bytesOf(trace); err != nil {
				return err
			}
			if err := os.RemoveAll(trace); err != nil {
				return err
			}
		}
		fmt.Printf("%-16s %-28s %d\n", prog, spread(ratios(told, native)), size>>20)
	}
	return nil
}

// fullLoops are of testdata/micro.c: what comes and goes whole, of which little is accessed.
var fullLoops = []struct{ kind, n string }{{"malloc", "20000"}, {"malloc-large", "2000"}, {"mmap", "2000"}}

// fullLoops measures what `run --full` costs where memory comes and goes.
func (b *bench) fullLoops(ctx context.Context) error {
	prog, err := b.compile("micro", microSource)
	if err != nil {
		return err
	}
	fmt.Printf("\n%-16s %-12s %s\n", "run --full, ns", "native", "run --full")
	for _, l := range fullLoops {
		var native, full []float64
		for range b.rounds {
			one, err := microOnce(ctx, []string{prog, l.kind, l.n})
			if err != nil {
				return err
			}
			two, err := microOnce(ctx, []string{b.ripstop, "run", "--full", "--exit-code", "0", "--", prog, l.kind, l.n})
			if err != nil {
				return err
			}
			native, full = append(native, one), append(full, two)
		}
		fmt.Printf("%-16s %-12.1f %.1f (%.1f×)\n", l.kind, median(native), median(full), median(full)/median(native))
	}
	return nil
}

// firstBytes copies the beginning of a file.
func firstBytes(from, to string, n int64) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

// bytesOf is the size of the files in a directory.
func bytesOf(dir string) (n int64, err error) {
	list, err := os.ReadDir(dir)
	for _, e := range list {
		if i, err := e.Info(); err == nil {
			n += i.Size()
		}
	}
	return n, err
}
