package count

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
)

func someFound(rnd *rand.Rand, n int) *found {
	f := &found{insts: make([]Inst, n), formOf: make([]uint32, n)}
	for range 1 + rnd.IntN(20) {
		f.forms = append(f.forms, example{rnd.Uint64() >> (3 + rnd.IntN(60)), x86.Live{Regs: x86.RegSet(rnd.Uint64()), Flags: x86.Flags(rnd.Uint32())}})
	}
	at := rnd.Uint64() >> 20
	for i := range f.insts {
		at += 1 + rnd.Uint64N(1<<rnd.IntN(30))
		f.insts[i] = Inst{Addr: at, Op: []string{"mov", "vpgatherdd", "add"}[rnd.IntN(3)], Access: Access{Kind(rnd.IntN(int(Kinds))), uint16(rnd.Uint32())}}
		f.formOf[i] = uint32(rnd.IntN(len(f.forms)))
	}
	return f
}

// What is kept of a module's instructions comes back as it was.
func TestFound(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		f := someFound(rnd, rnd.IntN(50))
		got, err := parseFound(f.append(nil))
		if err != nil || !reflect.DeepEqual(got, f) {
			t.Fatalf("%v\n%+v\n%+v", err, got, f)
		}
	}
}

// Any bytes are refused, or are what would be kept of what they say.
func FuzzFound(f *testing.F) {
	f.Add(someFound(rand.New(rand.NewPCG(3, 4)), 5).append(nil))
	f.Add([]byte{0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parseFound(b)
		if err != nil {
			return
		}
		again, err := parseFound(x.append(nil))
		if err != nil || !reflect.DeepEqual(again.insts, x.insts) || !reflect.DeepEqual(again.formOf, x.formOf) || !reflect.DeepEqual(again.forms, x.forms) {
			t.Fatalf("%v: %+v is kept as %+v", err, x, again)
		}
		if y := x.append(nil); !bytes.Equal(y, again.append(nil)) {
			t.Fatalf("% x and % x", y, again.append(nil))
		}
	})
}
