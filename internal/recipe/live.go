package recipe

import "github.com/ripstop/ripstop/internal/x86"

// Live gives what is live before the instruction that code begins with: code is what runs from there on, at most so much as is known. What may be assumed is
// said by Assume.
func Live(code []byte, assume x86.Assume) x86.Live {
	return x86.Liveness(x86.Block(code, blockLimit), assume)[0]
}

// blockLimit is how many instructions are looked at: what is not overwritten after so many is mostly live.
const blockLimit = 32

// Assume says what Live may take for granted in a text whose first byte lies at an address; begins says where instructions are known to begin.
//
// AssumeNoHandler always: a handler that is entered by a fault, or by a signal that comes just then, is shown dead registers and flags as the recipe left them,
// where it would natively see values that the program has no use for. Without it nothing at all is dead before an instruction that may fault. AssumeABI only if
// no call in the text has flags read behind it that it did not set, nor in front of what it calls: libx264's assembler returns conditions in ZF, for one.
func Assume(code []byte, at uint64, begins func(addr uint64) bool) x86.Assume {
	targets := make([]uint64, len(code)/64+1)
	entered := make([]uint64, len(code)/64+1)
	var returns, entries []int
	for i := range code {
		if !begins(at+uint64(i)) || !x86.MayBranch(code[i:]) {
			continue
		}
		n, distance, call, direct := x86.DirectBranch(code[i:])
		to, calls := i+n+int(distance), call
		if !direct {
			in, err := x86.Decode(code[i:])
			if err != nil {
				continue
			}
			var a uint64
			a, direct = in.Target(at + uint64(i))
			n, to = in.Len, int(a-at)
			call = in.Flow == x86.FlowCall
			calls = call || in.Flow == x86.FlowIndirectCall
		}
		if calls {
			returns = append(returns, i+n)
		}
		if direct && to >= 0 && to < len(code) {
			if !call {
				targets[to/64] |= 1 << (to % 64)
			} else if entered[to/64]>>(to%64)&1 == 0 {
				entered[to/64] |= 1 << (to % 64)
				entries = append(entries, to)
			}
		}
	}
	for _, i := range returns { // what is behind a call that does not return belongs to those who jump there
		if readsFlags(code, i, func(i int) bool { return targets[i/64]>>(i%64)&1 != 0 }) {
			return x86.AssumeNoHandler
		}
	}
	for _, i := range entries {
		if readsFlags(code, i, func(int) bool { return false }) {
			return x86.AssumeNoHandler
		}
	}
	return x86.AssumeNoHandler | x86.AssumeABI
}

// readsFlags says whether code at an offset reads arithmetic flags before it writes them and before it comes to a place where others come in. That syscall
// keeps them in r11 does not count.
func readsFlags(code []byte, i int, others func(i int) bool) bool {
	old := x86.FlagsArith
	for n := 0; n < blockLimit && old != 0 && i < len(code) && !others(i); n++ {
		in, err := x86.Decode(code[i:])
		if err != nil || in.Flow == x86.FlowSyscall {
			return false
		}
		if in.FlagsRead&old != 0 {
			return true
		}
		if old &^= in.FlagsWritten &^ in.FlagsKept; in.Flow != x86.FlowNone {
			return false
		}
		i += in.Len
	}
	return false
}
