package syscalls

import (
	"errors"

	"github.com/ripstop/ripstop/internal/patch"
	"github.com/ripstop/ripstop/internal/x86"
)

// Recipe is what a `syscall` instruction is replaced by: a jump to the agent's hook (internal/agent/c/syshook.c), with rcx the address of the ten bytes that follow the jump. rcx
// and r11 are the system call's to overwrite, so nothing is saved here and the stack is not touched. The hook makes the call by itself and comes back behind the
// trampoline's own `syscall`, or jumps to that: for calls that return on another stack.
type Recipe struct {
	Next uint64 // the address behind the site
	Hook uint64
}

// Replaces says that the site's own instruction is not copied.
func (Recipe) Replaces() bool { return true }

// The parts of the code: lea, jump to the hook in reach or by r11, syscall, lea.
const leaLen, nearLen, farLen, syscallLen = 7, 5, 10 + 3, 2

// Size is the most bytes that Append appends.
func (Recipe) Size() int { return leaLen + farLen + syscallLen + leaLen }

// Append appends the code as it is to lie at an address: see patch.Recipe.
func (r Recipe) Append(dst []byte, at uint64) ([]byte, []patch.State, error) {
	site := r.Next - 2
	jump := nearLen
	if !reaches(at+leaLen+nearLen, r.Hook) {
		jump = farLen
	}
	made := at + leaLen + uint64(jump)
	c := x86.Code{At: at}
	c.Lea(x86.RCX, x86.Abs(made, 8))
	jumpTo(&c, r.Hook, jump, x86.R11)
	c.Bytes = append(c.Bytes, 0x0f, 0x05)
	c.Lea(x86.RCX, x86.Abs(r.Next, 8))
	if len(c.Bytes) != leaLen+jump+syscallLen+leaLen && c.Err() == nil {
		return dst, nil, errors.New("the address behind the site is below 2 GiB or out of reach") // lea without RIP has another length
	}
	states := []patch.State{
		{For: site, Resume: patch.Restart},
		// What the hook does besides is done: the call is made from here, and restarted here by the kernel.
		{Off: leaLen + jump, For: site, Resume: leaLen + jump},
		{Off: leaLen + jump + syscallLen, For: r.Next, Resume: patch.Restart, Moves: []patch.Move{{Reg: uint8(x86.RCX.Num()), From: patch.FromFor}}},
	}
	return append(dst, c.Bytes...), states, c.Err()
}

// EntryRecipe stands before the first instruction of a function of the vdso: it jumps to the agent's rs_vdso_hook, which adds 1 at an offset of the thread's counts. By the ABI the
// function may overwrite what is used here: rax, r10, r11, flags.
type EntryRecipe struct {
	Entry  uint64
	Hook   uint64
	Offset uint32
}

// Replaces says that the instruction follows.
func (EntryRecipe) Replaces() bool { return false }

const movLen = 6 // mov r10d, imm32

// Size is the most bytes that Append appends.
func (EntryRecipe) Size() int { return movLen + leaLen + farLen }

// Append appends the code as it is to lie at an address: see patch.Recipe.
func (r EntryRecipe) Append(dst []byte, at uint64) ([]byte, []patch.State, error) {
	jump := nearLen
	if !reaches(at+movLen+leaLen+nearLen, r.Hook) {
		jump = farLen
	}
	c := x86.Code{At: at}
	c.MovImm(x86.EAX+10, uint64(r.Offset))
	c.Lea(x86.R11, x86.Abs(at+movLen+leaLen+uint64(jump), 8))
	jumpTo(&c, r.Hook, jump, x86.RAX)
	if len(c.Bytes) != movLen+leaLen+jump && c.Err() == nil {
		return dst, nil, errors.New("the vdso lies below 2 GiB")
	}
	return append(dst, c.Bytes...), []patch.State{{For: r.Entry, Resume: patch.Restart}}, c.Err()
}

func reaches(from, to uint64) bool { d := int64(to - from); return d == int64(int32(d)) }

// jumpTo appends a jump of so many bytes.
func jumpTo(c *x86.Code, to uint64, size int, by x86.Reg) {
	if size == nearLen {
		c.Jmp(to)
		return
	}
	rex, reg := byte(0x48), byte(by.Num())
	if reg >= 8 {
		rex |= 1
	}
	c.Bytes = append(c.Bytes, rex, 0xb8|reg&7) // mov r64, imm64
	for i := range 8 {
		c.Bytes = append(c.Bytes, byte(to>>(8*i)))
	}
	n := len(c.Bytes)
	c.JmpReg(by)
	for len(c.Bytes) < n+3 { // by rax it is shorter
		c.Bytes = append(c.Bytes, 0x90)
	}
}
