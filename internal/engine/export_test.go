package engine

// Reclaim looks for old trampolines' memory now.
func (p *Process) Reclaim() error { return p.reclaim() }
