package target

import (
	"github.com/ripstop/ripstop/internal/finding"
	"github.com/ripstop/ripstop/internal/wire"
)

// frame is a frame on a stack by an address in its function. It ends at cfa.
type frame struct{ pc, cfa uint64 }

// maxRacing bounds process.racing.
const maxRacing = 1 << 12

func (p *process) frameEvent(d wire.EvFrame) {
	if len(p.racing) >= maxRacing {
		clear(p.racing)
	}
	delete(p.racing, d.Object)
	if d.Function != 0 {
		if p.racing == nil {
			p.racing = map[uint64]frame{}
		}
		p.racing[d.Object] = frame{d.Function, d.Cfa}
	}
}

// stackSlot names the function whose frame holds o, and its variable there.
func (s *Set) stackSlot(o *finding.Object) {
	list := s.sym.Frames(o.Frame.Module, o.Frame.BuildID, o.Frame.Offset)
	if len(list) == 0 || list[len(list)-1].Func == "" {
		return
	}
	o.Func = list[len(list)-1].Func // what is inlined into it has no frame
	if _, name, path, typ, ok := s.sym.Local(o.Frame.Module, o.Frame.BuildID, o.Frame.Offset, o.FrameOffset); ok {
		o.Symbol, o.Path, o.Type = name, path, typ
	}
}
