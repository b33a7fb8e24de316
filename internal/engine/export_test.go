package engine

// Reclaim looks for old trampolines' memory now.
// Taken says whether the text was changed before the asker was told of the trampolines: it is when it is answered, or we are gone.
func (p *Process) Taken() bool { return p.page.Turn == turnTaken && len(p.last) > 0 }

func (p *Process) Reclaim() error { return p.reclaim() }
