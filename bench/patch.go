package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/ripstop/ripstop/internal/agent"
	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/wire"
	"github.com/ripstop/ripstop/internal/x86"
)

//go:embed testdata/patch.c
var patchSource []byte

// The goals of issue 3.
const (
	goalEmptyWorst = 2.5  // an empty recipe at every memory instruction
	goalEmptyMean  = 1.8  // of the three loops, geometric
	goalRequest    = 5000 // ns
	goalSiteBytes  = 200
)

// empty is a recipe that does nothing.
type empty struct{}

func (empty) Size() int                                                  { return 0 }
func (empty) Replaces() bool                                             { return false }
func (empty) Append(dst []byte, _ uint64) ([]byte, []patch.State, error) { return dst, nil, nil }

// hollow puts it at every memory instruction of the program that is no plain stack traffic. Asked by a test request it does nothing, or patches one more site.
type hollow struct {
	sites bool // at the start
	later []uint64
	next  int
}

func (h *hollow) Start(*engine.Process) error { return nil }
func (h *hollow) Sites(p *engine.Process, m *engine.Module) (list []patch.Site) {
	if m.Kind != engine.Program && m.Kind != engine.Libc || m.Kind == engine.Libc && h.sites {
		return nil
	}
	m.Instructions(func(in *engine.Insn) bool {
		for _, mem := range in.Inst.Mems() {
			if mem.Kind&x86.MemAddress == 0 && mem.Base != x86.RSP && in.Inst.Flow == x86.FlowNone {
				if h.sites {
					list = append(list, patch.Site{At: in.At, Recipe: empty{}})
				} else if m.Patchable(in.At) {
					h.later = append(h.later, in.At)
				}
				break
			}
		}
		return true
	})
	return list
}
func (h *hollow) Patched(*engine.Process, *engine.Module, func(uint64) *patch.Patch) {}
func (h *hollow) Site(*engine.Process, *engine.Module, uint64) (r patch.Recipe, ok bool) {
	return nil, false
}
func (h *hollow) End(*engine.Process) {}
func (h *hollow) Test(p *engine.Process, _ uint64) error {
	if h.next >= len(h.later) {
		return nil
	}
	at := h.later[h.next*7919%len(h.later)]
	h.next++
	return p.Change(p.Module(at), []patch.Site{{At: at, Recipe: empty{}}}, nil)
}

type deaf struct{}

func (deaf) Event(uint64, *wire.Event) {}
func (deaf) Batch()                    {}
func (deaf) End(uint64)                {}

// patchedOnce runs argv with an engine and gives the number that it prints.
func patchedOnce(ctx context.Context, c engine.Client, argv ...string) (float64, engine.Stats, error) {
	eng := engine.New(engine.Options{Client: c, Warn: func(text string) { fmt.Fprintln(os.Stderr, "bench:", text) }})
	s, err := agent.New(agent.Options{Config: wire.Config{}, Handler: deaf{}, Patcher: eng})
	if err != nil {
		return 0, engine.Stats{}, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.Environ(os.Environ()), &out, os.Stderr
	err = cmd.Run()
	if _, e := s.Close(); err == nil {
		err = e
	}
	st := eng.Stats()
	eng.Close()
	if err != nil {
		return 0, st, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(out.String()), 64)
	return v, st, err
}

// patches measures what trampolines and requests cost.
func (b *bench) patches(ctx context.Context) error {
	if !b.only.MatchString("patch") {
		return nil
	}
	prog, err := b.compile("patch", patchSource)
	if err != nil {
		return err
	}
	fmt.Printf("\n%-14s %11s  %s\n", "patched loop", "native", "an empty recipe at each memory instruction")
	product, worst := 1.0, 0.0
	kinds := []struct {
		name string
		n    int
	}{{"stencil", 60}, {"quicksort", 60}, {"chase", 60}}
	for _, k := range kinds {
		var native, patched []float64
		for range b.rounds {
			v, err := microOnce(ctx, []string{prog, k.name, strconv.Itoa(k.n)})
			if err != nil {
				return err
			}
			native = append(native, v)
			if v, _, err = patchedOnce(ctx, &hollow{sites: true}, prog, k.name, strconv.Itoa(k.n)); err != nil {
				return err
			}
			patched = append(patched, v)
		}
		r := median(ratios(patched, native))
		product *= r
		worst = max(worst, r)
		fmt.Printf("%-14s %8.1f µs  %.2f×\n", k.name, median(native)/1e3, r)
	}
	mean := math.Pow(product, 1/float64(len(kinds)))
	fmt.Printf("%-14s %11s  %.2f× %s, geometric mean %.2f× %s\n", "worst", "", worst, b.verdict(worst, goalEmptyWorst), mean, b.verdict(mean, goalEmptyMean))

	for _, k := range []struct {
		name string
		c    func() *hollow
		n    int
		goal float64
	}{
		{"that changes nothing", func() *hollow { return &hollow{later: nil, next: 0} }, 20000, goalRequest},
		{"for one site of libc", func() *hollow { return &hollow{} }, 2000, 0},
	} {
		var list []float64
		for range b.rounds {
			var c engine.Client = k.c()
			if k.goal != 0 {
				c = &idle{}
			}
			v, _, err := patchedOnce(ctx, c, prog, "request", strconv.Itoa(k.n))
			if err != nil {
				return err
			}
			list = append(list, v)
		}
		fmt.Printf("request %s: median %.1f µs %s\n", k.name, median(list)/1e3, b.verdict(median(list), k.goal))
	}
	return nil
}

// idle answers test requests at once.
type idle struct{ hollow }

func (*idle) Sites(*engine.Process, *engine.Module) []patch.Site { return nil }
func (*idle) Test(*engine.Process, uint64) error                 { return nil }
