package patch

import "slices"

// A State says what the program is to see of a thread whose RIP is in a piece of a trampoline: its instruction pointer and its registers, in terms of those
// that the thread has. It holds for the boundaries between instructions from Off on, up to the next state; a thread cannot stand elsewhere.
//
// Whoever shows the thread to the program (enters a handler of its, say) puts the registers in place and sets RIP to For. If the program then goes on at For,
// the thread is sent to Resume instead: what the recipe does to the outside is done and must not be done again. So no thread goes on in the middle of a recipe
// with what was saved there; the save slots may be used again as soon as the state was read. (A program that notes For, goes on elsewhere and comes back later,
// as runtimes do that switch their threads in handlers, has the effect twice.)
type State struct {
	Off    int    // of the first byte, in the trampoline's code
	For    uint64 // the program's RIP
	Resume int    // where the thread goes on, in the trampoline's code; Restart: at For, in the text
	Moves  []Move // what is not in place; all are done at once. Registers that were dead may hold anything and are not named.
}

// Restart as Resume: nothing is done yet, or everything, and the thread goes on at For.
const Restart = -1

// A Move says where a register of the program is.
type Move struct {
	Reg  uint8 // 0 to 15 as encoded, FlagsAH, FlagsAll or Extended
	From Source
	N    int32
}

// What a Move restores besides general registers.
const (
	FlagsAH  = 16 // SF, ZF, AF, PF and CF from bits 15 to 8 of the value, as lahf leaves them there, OF from bit 0; the other flags are in place
	FlagsAll = 17 // RFLAGS
	// Extended are vector, mask and x87 registers: not the 8 bytes at the source but an XSAVE area there has them, in the form and with the components that
	// recipe.Env names. Those that its XSTATE_BV leaves out are in their initial state.
	Extended = 18
	moveRegs = 19
)

// A Source says what the value is.
type Source uint8

// Sources.
const (
	FromReg   Source = iota // the general register N of the thread
	FromSlot                // the 8 bytes in save slot N of the thread
	FromStack               // the 8 bytes at the thread's rsp + N
	FromSum                 // the thread's register of the same number + N
	FromFor                 // For
	sources
)

// StateAt gives the state at an offset of the trampoline's code.
func (t *Trampoline) StateAt(off int) State {
	i, found := slices.BinarySearchFunc(t.States, off, func(s State, off int) int { return s.Off - off })
	if !found {
		i--
	}
	return t.States[i]
}
