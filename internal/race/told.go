package race

import "github.com/ripstop/ripstop/internal/wire"

// Told is the input of a recording whose events tell the accesses. events is as Input.Events.
func Told(events func(fn func(process uint64, e *wire.Event) error) error) Input {
	return Input{Both: func(event func(process uint64, e *wire.Event) error, access func(*Access)) error {
		return events(func(process uint64, e *wire.Event) error {
			if e.Type != wire.TypeAccess {
				return event(process, e)
			}
			ev := wire.DecodeAccess(e.Words)
			access(&Access{Process: process, Thread: e.Thread, Time: e.TS, Addr: ev.Addr, Size: ev.Size, PC: ev.Pc, Stack: ev.Stack, Kind: kindOf(ev.Kind) &^ Object})
			return nil
		})
	}}
}

// kindOf gives what an event's kind says.
func kindOf(told uint8) Kind {
	k := Kind(told)
	if k&Order != 0 { // to an event it means another thing
		k = k&^Order | Elements
	}
	return k
}
