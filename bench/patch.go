package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
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
	goalNothing    = 1.02 // with nothing patched, geometric mean: 1.00 and the noise of a machine in use
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

// patchedOnce runs argv with an engine and gives the numbers that it prints.
func patchedOnce(ctx context.Context, c engine.Client, argv ...string) ([]float64, engine.Stats, error) {
	eng := engine.New(engine.Options{Client: c, Warn: func(text string) { fmt.Fprintln(os.Stderr, "bench:", text) }})
	s, err := agent.New(agent.Options{Config: wire.Config{}, Handler: deaf{}, Patcher: eng})
	if err != nil {
		return nil, engine.Stats{}, err
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
		return nil, st, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	var list []float64
	for _, f := range strings.Fields(out.String()) {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return nil, st, err
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		return nil, st, fmt.Errorf("%s printed nothing", strings.Join(argv, " "))
	}
	return list, st, nil
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
	fmt.Printf("\n%-14s %11s  %-15s %s\n", "patched loop", "native", "nothing patched", "an empty recipe at each memory instruction")
	product, productNone, worst := 1.0, 1.0, 0.0
	kinds := []struct {
		name string
		n    int
	}{{"stencil", 60}, {"quicksort", 60}, {"chase", 60}}
	for _, k := range kinds {
		var native, nothing, patched []float64
		for range b.rounds {
			v, err := microOnce(ctx, []string{prog, k.name, strconv.Itoa(k.n)})
			if err != nil {
				return err
			}
			native = append(native, v)
			w, st, err := patchedOnce(ctx, &idle{}, prog, k.name, strconv.Itoa(k.n))
			if err != nil {
				return err
			}
			if st.Sites != 0 {
				return fmt.Errorf("%s with nothing patched: %d sites were", k.name, st.Sites)
			}
			nothing = append(nothing, w[0])
			w, _, err = patchedOnce(ctx, &hollow{sites: true}, prog, k.name, strconv.Itoa(k.n))
			if err != nil {
				return err
			}
			patched = append(patched, w[0])
		}
		r := median(ratios(patched, native))
		product *= r
		worst = max(worst, r)
		none := median(ratios(nothing, native))
		productNone *= none
		fmt.Printf("%-14s %8.1f µs  %-15s %.2f×\n", k.name, median(native)/1e3, fmt.Sprintf("%.2f×", none), r)
	}
	mean, none := math.Pow(product, 1/float64(len(kinds))), math.Pow(productNone, 1/float64(len(kinds)))
	fmt.Printf("%-14s %11s  %-15s %.2f× %s\n", "worst", "", "", worst, b.verdict(worst, goalEmptyWorst))
	fmt.Printf("%-14s %11s  %.2f× %-9s %.2f× %s\n", "geometric mean", "", none, b.verdict(none, goalNothing), mean, b.verdict(mean, goalEmptyMean))

	return b.siteBytes(ctx)
}

var (
	patchedBy   = regexp.MustCompile(`stats: patched by +[a-z0-9 ]+? +([0-9,]+) sites`)
	memoryASite = regexp.MustCompile(`stats: memory a site +([0-9]+) bytes(: .*)`)
)

// siteBytes asks `ripstop count` how much memory a site takes in the process: trampolines and tables.
func (b *bench) siteBytes(ctx context.Context) error {
	fmt.Printf("\n%-18s %9s  %s\n", "memory a site", "sites", "bytes")
	for _, k := range []struct {
		name string
		argv []string
	}{
		{"python3", []string{"/usr/bin/python3", "-c", "pass"}},
		{"openssl, libcrypto", []string{"openssl", "version"}},
		{"sqlite3", []string{"sqlite3", ":memory:", "select 1"}},
	} {
		text, err := exec.CommandContext(ctx, b.ripstop, append([]string{"count", "--stats", "--"}, k.argv...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ripstop count of %s: %w", k.name, err)
		}
		sites := 0
		for _, m := range patchedBy.FindAllSubmatch(text, -1) {
			n, _ := strconv.Atoi(strings.ReplaceAll(string(m[1]), ",", ""))
			sites += n
		}
		m := memoryASite.FindSubmatch(text)
		if m == nil || sites == 0 {
			return fmt.Errorf("ripstop count --stats of %s does not say what a site takes:\n%s", k.name, text)
		}
		n, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return err
		}
		fmt.Printf("%-18s %9d  %.0f%s %s\n", k.name, sites, n, m[2], b.verdict(n, goalSiteBytes))
	}
	return nil
}
