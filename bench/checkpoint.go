package main

import (
	"context"
	"debug/elf"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed testdata/checkpoint.c
var checkpointSource []byte

// checkpointMiB is the heap of which checkpoints are kept.
const checkpointMiB = 1024

// checkpoint measures checkpoints and rollbacks of a heap by the share of its pages that was written, as ratios to a memcpy of as much in the same process: with write protection, and plain copies. There is no goal.
func (b *bench) checkpoint(ctx context.Context) error {
	if !b.only.MatchString("checkpoint") {
		return nil
	}
	program, err := b.compile("checkpoint", checkpointSource)
	if err != nil {
		return err
	}
	if text, err := exec.CommandContext(ctx, b.ripstop, "agent", b.shared).CombinedOutput(); err != nil {
		return fmt.Errorf("ripstop agent: %w\n%s", err, text)
	}
	agent := filepath.Join(b.shared, "libripstop.so")
	entries, err := guardEntries(agent, "begin", "checkpoint", "rollback")
	if err != nil {
		return err
	}
	fmt.Printf("\n%-34s %-22s %-12s %-12s\n", fmt.Sprintf("%d MiB, ratios to memcpy", checkpointMiB), "writes (without, with)", "checkpoint", "rollback")
	for _, way := range []struct{ name, flags string }{{"write-protected", "0"}, {"plain", "1"}} {
		cmd := exec.CommandContext(ctx, program, append([]string{strconv.Itoa(checkpointMiB), "5", way.flags}, entries...)...)
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+agent)
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s checkpoints: %w", way.name, err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		var memcpy, first float64
		if _, err := fmt.Sscan(lines[0], &memcpy, &first); err != nil {
			return err
		}
		fmt.Printf("%-34s %-22s %.2f\n", way.name+", the first", "", first/memcpy)
		for _, l := range lines[1:] {
			var percent int
			var without, with, keep, back float64
			if _, err := fmt.Sscan(l, &percent, &without, &with, &keep, &back); err != nil {
				return err
			}
			fmt.Printf("%-34s %-22s %-12.2f %-12.2f\n", fmt.Sprintf("%s, %d%% written", way.name, percent), fmt.Sprintf("%.2f, %.2f", without/memcpy, with/memcpy), keep/memcpy, back/memcpy)
		}
	}
	return nil
}

// guardEntries gives how far behind its pthread_create the agent's functions rs_guard_… are, which nobody but tests calls.
func guardEntries(agent string, names ...string) (list []string, err error) {
	f, err := elf.Open(agent)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	at := map[string]uint64{}
	for _, s := range symbols {
		at[s.Name] = s.Value
	}
	for _, name := range names {
		entry := at["rs_guard_"+name]
		if entry == 0 || at["pthread_create"] == 0 {
			return nil, fmt.Errorf("the agent has no rs_guard_%s", name)
		}
		list = append(list, strconv.FormatInt(int64(entry-at["pthread_create"]), 10))
	}
	return list, nil
}
