package agent

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A Footprint is what a process has of memory, in KiB of Pss (proc(5), smaps): what several share is divided among them. Of guard's arena the parts that the agent tells apart (guard.h, enum rs_arena) stand by themselves, too.
type Footprint struct {
	All   int64
	Own   int64 // guard's own state, and stacks
	Logs  int64 // what an epoch writes down
	Kept  int64 // memory and threads as they were at the checkpoint
	Arena int64 // whatever lies in the arena
}

// Where guardmap.c asks for its arena, and how it divides it, in eighths.
const (
	arenaAt    = 0x200000000000
	arenaBytes = 1 << 38
)

var arenaParts = [...]struct {
	eighth uint64
	of     func(*Footprint) *int64
}{
	{0, func(f *Footprint) *int64 { return &f.Own }},
	{1, func(f *Footprint) *int64 { return &f.Logs }},
	{5, func(f *Footprint) *int64 { return &f.Kept }},
}

// ReadFootprint asks the kernel, which goes through all of the process's page tables for it: it costs milliseconds, and the process waits where it maps anything meanwhile.
func ReadFootprint(pid int) (Footprint, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return Footprint{}, err
	}
	return parseFootprint(string(text))
}

func parseFootprint(text string) (f Footprint, err error) {
	var part *int64
	for line := range strings.Lines(text) {
		if line[0] < 'A' || line[0] >= 'a' { // a mapping's first line; the others begin with a capital letter
			var lo, hi uint64
			if _, err := fmt.Sscanf(line, "%x-%x ", &lo, &hi); err != nil {
				return f, fmt.Errorf("smaps: %q: %w", line, err)
			}
			if part, err = f.part(lo, hi); err != nil {
				return f, err
			}
			continue
		}
		rest, ok := strings.CutPrefix(line, "Pss:")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return f, fmt.Errorf("smaps: %w", err)
		}
		f.All += n
		if part != nil {
			f.Arena += n
			*part += n
		}
	}
	return f, nil
}

// part is that in which a mapping lies; nil: none, it is not the arena's. A mapping that lies in two says that the arena is divided otherwise.
func (f *Footprint) part(lo, hi uint64) (*int64, error) {
	end := uint64(arenaAt + arenaBytes)
	if lo >= end || lo < arenaAt {
		return nil, nil
	}
	for i := len(arenaParts) - 1; ; i-- {
		begin := arenaAt + arenaBytes/8*arenaParts[i].eighth
		if lo < begin {
			end = begin
			continue
		}
		if hi > end {
			return nil, fmt.Errorf("smaps: %x-%x is of two parts of guard's arena", lo, hi)
		}
		return arenaParts[i].of(f), nil
	}
}
