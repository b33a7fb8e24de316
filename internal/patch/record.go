package patch

import "slices"

// A record is what a planner keeps of an instruction that is a site or patched. There may be millions: the rest of a Patch is made anew when it is asked for.
type record struct {
	recipe Recipe // nil: no site
	off    uint32 // of the instruction in the text
	dist   int32  // the trampoline's address less from()
	size   uint16 // of the trampoline
	copies uint16 // how far the instructions that the trampoline holds reach, from the instruction on
	tier   Tier
	bytes  uint8 // that are changed; 0: it is not patched
	end    uint8 // where the jump ends, from the instruction on: the instructions before that lend it their bytes
	before uint8 // how far before it the site lies on whose behalf it was displaced; 0: it is a site itself
	evicts uint8 // how far behind it the instruction lies that was displaced on its behalf; 0: none
	via    uint8 // how far behind it its jump lies inside that; 0: it begins with the jump
	marked bool  // to be planned anew
}

func (r *record) patched() bool { return r.bytes != 0 }

// from is what the distance to the trampoline is counted from, in the text.
func (r *record) from() uint64 { return uint64(r.off) + uint64(r.end) }

// Records lie in blocks of the text.
const blockBytes = 256

// records are those of a text, by block and in order there.
type records struct {
	blocks  [][]record
	patched int
}

// find gives the block of an offset and the place there of the first record at or behind it.
func (s *records) find(off uint32) (block []record, i int) {
	block = s.blocks[off/blockBytes]
	for i < len(block) && block[i].off < off {
		i++
	}
	return block, i
}

// at gives the record of an offset, nil if there is none, until others are added or removed.
func (s *records) at(off uint64) *record {
	if off/blockBytes >= uint64(len(s.blocks)) {
		return nil
	}
	if block, i := s.find(uint32(off)); i < len(block) && block[i].off == uint32(off) {
		return &block[i]
	}
	return nil
}

// add gives the record of an offset, a new one if there is none.
func (s *records) add(off uint32) *record {
	block, i := s.find(off)
	if i == len(block) || block[i].off != off {
		block = slices.Insert(block, i, record{off: off})
		s.blocks[off/blockBytes] = block
	}
	return &block[i]
}

// room makes room for sites to come, which are in order, in one piece.
func (s *records) room(sites []Site, at uint64) {
	count := func(i int) (n int) {
		for b := (sites[i].At - at) / blockBytes; i+n < len(sites) && (sites[i+n].At-at)/blockBytes == b; n++ {
		}
		return n
	}
	total := 0
	for i := 0; i < len(sites); {
		n := count(i)
		if b := (sites[i].At - at) / blockBytes; b < uint64(len(s.blocks)) {
			total += len(s.blocks[b]) + n
		}
		i += n
	}
	all := make([]record, 0, total)
	for i := 0; i < len(sites); {
		n := count(i)
		if b := (sites[i].At - at) / blockBytes; b < uint64(len(s.blocks)) {
			k := len(all)
			all = append(all, s.blocks[b]...)
			s.blocks[b] = all[k:len(all):min(len(all)+n, cap(all))]
			all = all[:min(len(all)+n, cap(all))]
		}
		i += n
	}
}

// drop removes a record that says nothing any more.
func (s *records) drop(off uint32) {
	block, i := s.find(off)
	if i < len(block) && block[i].off == off && block[i].recipe == nil && !block[i].patched() {
		s.blocks[off/blockBytes] = slices.Delete(block, i, i+1)
	}
}

// each calls back for the records in [lo, hi), in order, until it returns false.
func (s *records) each(lo, hi uint64, f func(*record) bool) {
	for b := lo / blockBytes; b < uint64(len(s.blocks)) && b*blockBytes < hi; b++ {
		for i := range s.blocks[b] {
			if r := &s.blocks[b][i]; uint64(r.off) >= lo && uint64(r.off) < hi && !f(r) {
				return
			}
		}
	}
}

// reach is how far behind its own instruction another one may lie that a patch depends on.
const reach = 2 + 127 + 15 + jumpLen + maxCopies

// leans says whether a patch has bytes of another instruction in its jump.
func (r *record) leans(off uint64) bool {
	switch from := uint64(r.off); {
	case !r.patched() || off <= from:
		return false
	case r.via != 0:
		return off == from+uint64(r.evicts) || off > from+uint64(r.via) && off < r.from()
	default:
		return off < r.from()
	}
}

// holds says whether its trampoline holds a copy of the other instruction.
func (r *record) holds(off uint64) bool {
	return r.patched() && off > uint64(r.off) && off < uint64(r.off)+uint64(r.copies)
}

// leant says whether a patch has bytes of an instruction in its jump.
func (s *records) leant(off uint64) (found bool) {
	s.each(off-min(off, reach), off, func(r *record) bool {
		found = r.leans(off)
		return !found
	})
	return found
}
