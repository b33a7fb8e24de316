// Package recipe makes code for trampolines of what is to be done at an instruction: a list of typed operations becomes machine code that saves only what is
// live, never touches the stack above the red zone's end, and says at each of its boundaries where the program's registers are. Run says in Go what the
// operations mean; the tests hold the code against it, on the processor. A new analysis is a new list, not new assembly.
//
// It knows one instruction at a time. Where trampolines lie and what the text becomes is package patch's; nothing here touches a process.
package recipe

import (
	"errors"

	"github.com/ripstop/ripstop/internal/x86"
)

// Errors of recipes for an instruction. Compile wraps them.
var (
	ErrAddress = errors.New("the address of the access is not one that a register holds: a vector of addresses, relative to GS, or a bit anywhere")
	ErrOrder   = errors.New("an operation behind one that ends the recipe")
	ErrFlow    = errors.New("an instruction that controls where the program goes on cannot be replaced")
	ErrEnv     = errors.New("the thread has not what the operation needs")
	ErrOp      = errors.New("no such operation")
)

// An Op is an operation: Count, Call, Tell, Defer, Check, GS, Emulate or Hook.
type Op interface{ op() }

// Count adds 1 to a 64-bit cell. Threads must find memory at the cell at all times.
type Count struct {
	Cell uint64
	Of   Counter
}

// A Counter says whose a cell is.
type Counter uint8

const (
	// Shared cells lie at Cell and are counted with a lock prefix: about 20 cycles.
	Shared Counter = iota
	// Alone cells lie at Cell and lose counts if several threads run.
	Alone
	// PerThread cells lie at Cell + the number at fs:Env.Cells: a thread for which that is still 0 counts in the cells of nobody, with losses.
	PerThread
)

// Call calls a function of the agent's before the instruction: void f(struct context *) in the System V ABI (context.go). It may change nothing of the
// program's but through its context, which is not looked at again.
type Call struct {
	Func uint64
	// General says that the function and what it calls was compiled for general registers only: vector, mask, x87 and MMX state is not saved.
	General bool
	Data    uint64 // for the context
}

// Tell calls code of the agent's before the instruction with the address of an access in rdi: 34 bytes with a short operand, where a Call takes 250. The code's address lies at
// fs:Entry. It finds, on the program's stack below the red zone, its return address and above it the program's rdi; at the return address lie the eight bytes of TellMark. It
// changes nothing of the program's, puts rdi back, and returns by `ret $136`, which leaves rsp as it was.
//
// With a Gate, which is an offset from fs of a pointer, it is called only if the byte at TellGate behind what that points to is not 0. That costs little where the arithmetic flags are dead.
type Tell struct {
	Mem    int // which of the instruction's Mems
	Entry  int32
	Shape  uint8 // what the code is told of the access
	Gate   int32 // 0: none
	Clears int32 // 0, or where a word lies, from fs, that is 0 afterwards
}

// TellGate is where a Gate's byte lies.
const TellGate = 16

// Emulate calls a function of the agent's instead of the instruction: void f(struct context *), which may change the registers and flags in its context; rsp
// too. The instruction must be one that goes on to its successor.
type Emulate Call

// Defer notes an access for who tells the next one, in four words of the thread's: at fs:At its address, behind it the address of a TellMark, and the program's rsp and rbp. The address is stored last, and 0 is none.
type Defer struct {
	Mem   int
	At    int32
	Shape uint8
}

// Check looks a memory access up in a table of bytes: the byte at Table + (address & (1<<Bits - 1)) >> Shift. If it has a bit of Mask, Then is done in place of
// the operations that follow.
type Check struct {
	Mem   int    // which of the instruction's Mems
	Table uint64 // must be readable for all addresses
	Bits  uint8  // 0: 64
	Shift uint8
	Mask  uint8
	Then  []Op
}

// GS runs the instruction with the base of GS added to the addresses of those accesses for which x86.Inst.TakesGS. Nothing may follow it.
type GS struct{}

// Hook jumps to a function instead of the instruction, which must be syscall: rcx holds the address in the trampoline to jump back to, r11 the address behind
// the instruction; both are the syscall's to overwrite. All other registers and flags are the program's. The function leaves what the system call leaves; rcx
// is set to the address behind the instruction once more when it is back, so that it may come back by jmp *%rcx. Nothing may follow it.
type Hook struct{ Func uint64 }

func (Count) op()   {}
func (Call) op()    {}
func (Tell) op()    {}
func (Defer) op()   {}
func (Check) op()   {}
func (GS) op()      {}
func (Emulate) op() {}
func (Hook) op()    {}

// A Site is the instruction.
type Site struct {
	At   uint64
	Inst x86.Inst
	Code []byte // at least Inst.Len bytes
}

// Env is what each thread has. Offsets are from its FS base, as those of variables in the initial-exec model are. An offset of 0 says that there is none.
type Env struct {
	// Save is the first of Slots save slots of 8 bytes. MaxSlots do for any recipe. They hold nothing when code of the program runs.
	Save  int32
	Slots int
	// Cells is a number that is added to cells that are PerThread.
	Cells int32
	// Context is where the address of the Context lies while a function called by a recipe runs; 0 otherwise. A thread that is in a trampoline, not in a function,
	// runs none of that trampoline's: if what lies there is the thread's rsp, whoever takes it out of the trampoline (patch.State) puts the context's Outer there.
	// A handler that interrupted a function and left by longjmp leaves it as it was: what lies below the thread's rsp is no context any more.
	Context int32
	// XSave is how vector state is saved around functions that are not General. The zero value: not at all, and such calls give ErrEnv.
	XSave XSave
}

// MaxSlots is the most save slots that a recipe uses.
const MaxSlots = 3

// XSave says how a processor saves extended state (Intel SDM vol. 1, chapter 13).
type XSave struct {
	Mask    uint64 // of components; without protection keys (bit 9), which calls leave alone
	Size    uint32 // of the area, for Mask, in the form that xsavec gives if Compact
	Compact bool   // xsavec is there
}

// Code is a compiled recipe: a patch.Recipe.
type Code struct {
	site     Site
	env      Env
	live     x86.Live
	ops      []Op
	size     int
	replaces bool
}

// Size is the most bytes that Append appends.
func (c *Code) Size() int { return c.size }

// Replaces says that the code holds the displaced instruction or what stands for it.
func (c *Code) Replaces() bool { return c.replaces }
