package recipe

// A Machine is what operations act on. It is the program's thread before the instruction, and what the agent keeps.
type Machine interface {
	// Address gives the address of one of the instruction's accesses.
	Address(mem int) uint64
	// Byte reads a table.
	Byte(addr uint64) byte
	// Add adds 1 to a cell.
	Add(cell uint64, of Counter)
	// Tell tells what lies at fs:entry of an access.
	Tell(entry int32, addr uint64, shape uint8)
	// Defer notes one at fs:to.
	Defer(to int32, addr uint64, shape uint8)
	// Clear stores 0 at fs:at.
	Clear(at int32)
	// Open says what the byte of the gate at fs:gate says.
	Open(gate int32) bool
	// Call calls a function of the agent's, which may change registers if emulate is set.
	Call(f, data uint64, emulate bool)
}

// An End says what becomes of the instruction behind a recipe.
type End uint8

// Ends.
const (
	Plain  End = iota // it runs as it is
	WithGS            // it runs with the base of GS added
	Done              // it does not run: a function did it
	Hooked            // it does not run: control goes to Hook's function
)

// Run does what the operations mean. It is their specification: Compile's code does the same.
func Run(ops []Op, m Machine) End {
	for _, o := range ops {
		switch o := o.(type) {
		case Count:
			m.Add(o.Cell, o.Of)
		case Call:
			m.Call(o.Func, o.Data, false)
		case Tell:
			if o.Gate == 0 || m.Open(o.Gate) {
				m.Tell(o.Entry, m.Address(o.Mem), o.Shape)
				if o.Clears != 0 {
					m.Clear(o.Clears)
				}
			}
		case Defer:
			m.Defer(o.At, m.Address(o.Mem), o.Shape)
		case Check:
			a := m.Address(o.Mem)
			if o.Bits != 0 {
				a &= 1<<o.Bits - 1
			}
			if m.Byte(o.Table+a>>o.Shift)&o.Mask != 0 {
				return Run(o.Then, m)
			}
		case Emulate:
			m.Call(o.Func, o.Data, true)
			return Done
		case GS:
			return WithGS
		case Hook:
			return Hooked
		}
	}
	return Plain
}
