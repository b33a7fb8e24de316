package hook

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/syscalls"
)

// To look through all of libc for its system calls and locks takes longer than to patch them, and what is found follows from its file alone: so it is kept on disk, as the engine keeps where instructions begin (engine/kept.go).

// A call is an instruction that makes system calls, by its link-time address.
type call struct {
	at   uint64
	size uint8           // 0: it is not known to be one
	left syscalls.Reason // why it is left as it is
}

// reasons are what a call may be left for, by the number that is kept. The first is that of the others.
var reasons = [...]syscalls.Reason{"", syscalls.LeftSigreturn, syscalls.LeftExit, syscalls.Left32}

var errKept = errors.New("not what is kept")

// kept gives what is kept of a module under a name; nothing of the vdso, which is the kernel's.
func kept(m *engine.Module, name string) ([]byte, bool) {
	if m.Kind == engine.VDSO {
		return nil, false
	}
	return m.Kept(name)
}

// appendCalls appends calls for parseCalls: of each the address, the size and the reason's number.
func appendCalls(dst []byte, list []call) []byte {
	for _, c := range list {
		dst = binary.AppendUvarint(dst, c.at)
		dst = append(dst, c.size, uint8(slices.Index(reasons[:], c.left)))
	}
	return dst
}

// parseCalls takes any bytes.
func parseCalls(b []byte) (list []call, err error) {
	for len(b) > 0 {
		at, n := binary.Uvarint(b)
		if n <= 0 || len(b) < n+2 || int(b[n+1]) >= len(reasons) || b[n] == 0 && b[n+1] == 0 || b[n] > 15 {
			return nil, errKept
		}
		list = append(list, call{at, b[n], reasons[b[n+1]]})
		b = b[n+2:]
	}
	return list, nil
}

// appendList appends addresses for parseList.
func appendList(dst []byte, list []uint64) []byte {
	for _, at := range list {
		dst = binary.AppendUvarint(dst, at)
	}
	return dst
}

// parseList takes any bytes.
func parseList(b []byte) (list []uint64, err error) {
	for len(b) > 0 {
		at, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errKept
		}
		list = append(list, at)
		b = b[n:]
	}
	return list, nil
}

// appendPlaces appends places for parsePlaces: how many are clocks, and both lists.
func appendPlaces(dst []byte, list places) []byte {
	return appendList(appendList(binary.AppendUvarint(dst, uint64(len(list.clocks))), list.clocks), list.calls)
}

// parsePlaces takes any bytes.
func parsePlaces(b []byte) (places, error) {
	clocks, n := binary.Uvarint(b)
	if n <= 0 {
		return places{}, errKept
	}
	list, err := parseList(b[n:])
	if err != nil || clocks > uint64(len(list)) {
		return places{}, errKept
	}
	return places{clocks: list[:clocks:clocks], calls: list[clocks:]}, nil
}
