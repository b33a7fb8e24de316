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
			access(&Access{Process: process, Thread: e.Thread, Time: e.TS, Addr: ev.Addr, Size: ev.Size, PC: ev.Pc, Stack: ev.Stack, Kind: Kind(ev.Kind) &^ Object})
			return nil
		})
	}}
}
