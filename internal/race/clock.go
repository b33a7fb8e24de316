package race

// A slot is a place in vector clocks. Threads that one after another have it are ordered, each behind the end of the one before: so a clock is no longer than
// the most threads that were ever alive, or unjoined, at once.
type slot = uint32

// epoch is a time of a slot: slot<<44 | time. 0 is no time. 20 bits of slots, 44 of times.
type epoch uint64

const timeBits = 44

func makeEpoch(s slot, at uint64) epoch { return epoch(s)<<timeBits | epoch(at) }
func (e epoch) slot() slot              { return slot(e >> timeBits) }
func (e epoch) time() uint64            { return uint64(e) & (1<<timeBits - 1) }

// vector says, of each slot, up to which time what it did is known. It is never changed once made, so that many may share it.
type vector []uint64

func (v vector) at(s slot) uint64 {
	if int(s) < len(v) {
		return v[s]
	}
	return 0
}

// covers reports whether v knows all that w knows.
func (v vector) covers(w vector) bool {
	if len(w) == 0 || len(v) >= len(w) && &v[0] == &w[0] {
		return true
	}
	for i, x := range w {
		if v.at(slot(i)) < x {
			return false
		}
	}
	return true
}

// stamp is what a thread tells another: all that v knows, and what the thread of the slot did up to a time. at 0: nothing at all.
type stamp struct {
	v  vector
	of slot
	at uint64
}

// knows reports whether v knows all that s tells.
func (v vector) knows(s stamp) bool { return v.at(s.of) >= s.at && v.covers(s.v) }

// join is what v and s know together.
func (v vector) join(s stamp) vector {
	if v.knows(s) {
		return v
	}
	out := make(vector, max(len(v), len(s.v), int(s.of)+1))
	copy(out, v)
	for i, x := range s.v {
		out[i] = max(out[i], x)
	}
	out[s.of] = max(out[s.of], s.at)
	return out
}

// merge is both of two stamps.
func merge(a, b stamp) stamp {
	switch {
	case a.at == 0:
		return b
	case b.at == 0:
		return a
	case (a.of == b.of && a.at <= b.at || b.v.at(a.of) >= a.at) && b.v.covers(a.v):
		return b // it came later and knew
	}
	return stamp{a.v.join(b), a.of, a.at}
}
