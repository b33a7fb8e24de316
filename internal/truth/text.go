package truth

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The text twin, one line a step:
//
//	#17 4242/4243 ran 0x401136 r8@0x7ffe0010 w4@0x4050
//	#18 4242/4243 ran 0x401140 rwl4@0x4060 rs8@0x7ffe0018
//	#19 4242/4243 handler 0x401146 14
//
// Number, process and thread, kind, address; then the accesses as letters (r, w, l locked, s stack, m at most), size and address, or the value.
const flagLetters = "rwlsm"

// AppendText appends the line of a step, without its end.
func AppendText(dst []byte, s *Step) []byte {
	dst = fmt.Appendf(dst, "#%d %d/%d %v %#x", s.Order, s.PID, s.TID, s.Kind, s.IP)
	if s.Kind != Ran {
		return strconv.AppendUint(append(dst, ' '), s.Value, 10)
	}
	for _, a := range s.Accesses {
		dst = append(dst, ' ')
		for i := range flagLetters {
			if a.Flags>>i&1 != 0 {
				dst = append(dst, flagLetters[i])
			}
		}
		dst = fmt.Appendf(dst, "%d@%#x", a.Size, a.Addr)
	}
	return dst
}

// ParseText reads lines as AppendText makes them; empty ones and those that begin with "# " are skipped. The error names the line.
func ParseText(in io.Reader) (steps []Step, err error) {
	sc := bufio.NewScanner(in)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		s, err := parseLine(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", n, line, err)
		}
		steps = append(steps, s)
	}
	return steps, sc.Err()
}

func parseLine(f []string) (s Step, err error) {
	if len(f) < 4 || f[0][0] != '#' {
		return s, fmt.Errorf("a line is #number process/thread kind address …")
	}
	pid, tid, _ := strings.Cut(f[1], "/")
	number := func(text string, bits int) (v uint64) {
		if err == nil {
			v, err = strconv.ParseUint(text, 0, bits)
		}
		return v
	}
	s.Order, s.PID, s.TID, s.IP = number(f[0][1:], 64), uint32(number(pid, 32)), uint32(number(tid, 32)), number(f[3], 64)
	for s.Kind = 0; int(s.Kind) < len(kindNames) && kindNames[s.Kind] != f[2]; s.Kind++ {
	}
	if int(s.Kind) == len(kindNames) {
		return s, fmt.Errorf("%q is no kind of step", f[2])
	}
	rest := f[4:]
	if s.Kind != Ran {
		if len(rest) != 1 {
			return s, fmt.Errorf("one value follows the address")
		}
		s.Value = number(rest[0], 64)
		return s, err
	}
	if len(rest) > maxAccesses {
		return s, fmt.Errorf("%d accesses, at most %d", len(rest), maxAccesses)
	}
	for _, text := range rest {
		var a Access
		i := 0
		for ; i < len(text) && strings.IndexByte(flagLetters, text[i]) >= 0; i++ {
			a.Flags |= 1 << strings.IndexByte(flagLetters, text[i])
		}
		size, addr, _ := strings.Cut(text[i:], "@")
		a.Size, a.Addr = number(size, 64), number(addr, 64)
		if err == nil && a.Size == 0 {
			err = fmt.Errorf("an access of no bytes")
		}
		s.Accesses = append(s.Accesses, a)
	}
	return s, err
}
