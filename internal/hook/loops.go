package hook

import (
	"slices"

	"github.com/ripstop/ripstop/internal/x86"
)

// A loop is code of a function from each of whose instructions one comes to all others; outer: the loop that it lies in, or nil.
type loop struct {
	code  []int
	outer *loop
	inner []*loop
}

// loopsOf gives a function's loops, those that lie in others, too: what is left of a loop without the instruction at which it is entered.
func loopsOf(code []insn, index map[uint64]int) (all []*loop) {
	next := make([][]int, len(code))
	for n := range code {
		in := &code[n]
		switch in.Flow {
		case x86.FlowJump, x86.FlowCond, x86.FlowLoop:
			if to, ok := in.Target(in.at); ok {
				if i, ok := index[to]; ok {
					next[n] = append(next[n], i)
				}
			}
		}
		switch in.Flow {
		case x86.FlowJump, x86.FlowIndirectJump, x86.FlowRet, x86.FlowTrap, x86.FlowHalt:
		default:
			if n+1 < len(code) {
				next[n] = append(next[n], n+1)
			}
		}
	}
	every := make([]int, len(code))
	for n := range every {
		every[n] = n
	}
	const deepest = 8
	var within func(nodes []int, outer *loop, depth int)
	within = func(nodes []int, outer *loop, depth int) {
		for _, c := range circles(nodes, next) {
			l := &loop{code: c, outer: outer}
			if outer != nil {
				outer.inner = append(outer.inner, l)
			}
			all = append(all, l)
			if len(c) > 1 && depth < deepest {
				entered := c[0] // the lowest: loops are entered at their beginning, or by a jump into it
				within(slices.DeleteFunc(slices.Clone(c), func(n int) bool { return n == entered }), l, depth+1)
			}
		}
	}
	within(every, nil, 0)
	return all
}

// circles gives the strongly connected parts of some nodes that have a way from a node back to it, each ascending (Tarjan's way, without recursion).
func circles(nodes []int, next [][]int) (list [][]int) {
	in := map[int]bool{}
	for _, n := range nodes {
		in[n] = true
	}
	number, low, on := map[int]int{}, map[int]int{}, map[int]bool{}
	var stack []int
	type visit struct{ node, edge int }
	for _, root := range nodes {
		if number[root] != 0 {
			continue
		}
		todo := []visit{{root, 0}}
		for len(todo) > 0 {
			v := &todo[len(todo)-1]
			n := v.node
			if v.edge == 0 {
				number[n] = len(number) + 1
				low[n] = number[n]
				stack = append(stack, n)
				on[n] = true
			}
			if v.edge < len(next[n]) {
				to := next[n][v.edge]
				v.edge++
				if !in[to] {
					continue
				}
				if number[to] == 0 {
					todo = append(todo, visit{to, 0})
				} else if on[to] {
					low[n] = min(low[n], number[to])
				}
				continue
			}
			todo = todo[:len(todo)-1]
			if len(todo) > 0 {
				up := todo[len(todo)-1].node
				low[up] = min(low[up], low[n])
			}
			if low[n] != number[n] {
				continue
			}
			var c []int
			for {
				k := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				on[k] = false
				c = append(c, k)
				if k == n {
					break
				}
			}
			if len(c) > 1 || slices.Contains(next[n], n) {
				slices.Sort(c)
				list = append(list, c)
			}
		}
	}
	return list
}

// tries says whether a loop is the innermost one around what tries to change something at once, or, of what pauses or waits, the innermost one that reads memory.
func (l *loop) tries(code []insn, marks map[uint64]bool, accesses map[uint64]int) bool {
	if len(l.code) > mostLoop {
		return false
	}
	inside := map[int]bool{} // what lies in an inner loop that tries by itself
	for _, i := range l.inner {
		reads := slices.ContainsFunc(i.code, func(n int) bool { return isRead(&code[n], accesses) })
		for _, n := range i.code {
			if reads || code[n].Op == "cmpxchg" {
				inside[n] = true
			}
		}
	}
	return slices.ContainsFunc(l.code, func(n int) bool { return marks[code[n].at] && !inside[n] })
}

func isRead(in *insn, accesses map[uint64]int) bool {
	_, ok := accesses[in.at]
	return ok && accessOf(&in.Inst) == loads
}

// waits says whether it is a short one that calls a function that waits: there is little in it but what it waits for.
func (l *loop) waits(code []insn, waits map[uint64]bool, accesses map[uint64]int) bool {
	return len(l.code) <= mostWait && l.tries(code, waits, accesses)
}
