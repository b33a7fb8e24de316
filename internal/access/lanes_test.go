package access

import (
	"encoding/hex"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
)

// What the agent is told of instructions whose bytes registers decide; that it is right the programs of internal/race/testdata/unstepped show.
func TestLanes(t *testing.T) {
	for _, c := range []struct {
		code, what  string
		kind        uint64
		by          uint64
		elem, width int
	}{
		{"d7", "xlat", laneTable, 0, 1, 16},
		{"480f4d08", "cmovge rcx, [rax]", laneCondition, 13, 1, 16},
		{"f3a6", "repe cmpsb", laneStrings, 0, 1, 16},
		{"480fab44b708", "bts [rdi+rsi*4+8], rax", laneBit, 0, 1, 16},
		{"0fae08", "fxrstor [rax]", laneState, 1, 1, 16},
		{"66410ff7c9", "maskmovdqu xmm1, xmm9", laneSigns, 9, 1, 16},
		{"0ff7cb", "maskmovq mm1, mm3", laneSigns, 3, 1, 8},
		{"c4e2ed8e08", "vpmaskmovq [rax], ymm2, ymm1", laneSigns, 2, 8, 32},
		{"c4e265910c90", "vpgatherqd xmm1, [rax+ymm2*4], xmm3", laneGather, 3, 4, 16},
		{"62f27d42910c88", "vpgatherqd ymm1{k2}, [rax+zmm17*4]", laneGatherBy, 2, 4, 32},
		{"62d2fd43a04cc908", "vpscatterdq [r9+ymm17*8+64]{k3}, zmm1", laneGatherBy, 3, 8, 32},
		{"62f1ffa96f08", "vmovdqu16 ymm1{k1}{z}, [rax]", laneOpmask, 1, 2, 32},
		{"62f26d493908", "vpminsd zmm1{k1}, zmm2, [rax]", laneOpmask, 1, 4, 64},
		{"62f1ef095808", "vaddsd xmm1{k1}, xmm2, [rax]", laneOpmask, 1, 8, 8},
		{"62f27d498a08", "vcompressps [rax]{k1}, zmm1", lanePacked, 1, 4, 64},
	} {
		in := decode(t, c.code)
		data, unseen := dataOf(&in)
		if unseen || data&lanes == 0 || data>>laneWhat&15 != c.kind || data>>laneBy&31 != c.by || 1<<(data>>laneElem&3) != c.elem || 8<<(data>>laneWidth&3) != c.width {
			t.Errorf("%s: %#x, %v", c.what, data, unseen)
		}
	}
	// A synchroniser's read by a condition orders as its other reads do.
	in := decode(t, "480f4d08")
	if data, unseen := (scope{sync: true}).of(&in); data != read|atomic || unseen {
		t.Errorf("cmovge in a synchroniser: %#x, %v", data, unseen)
	}
	for _, c := range []struct{ code, what string }{
		{"62f26d493608", "vpermd zmm1{k1}, zmm2, [rax]"}, {"62f27d493108", "vpmovzxbd zmm1{k1}, [rax]"}, {"67f3a6", "repe cmpsb [esi], [edi]"}, {"65480fab10", "bts gs:[rax], rdx"},
	} {
		in := decode(t, c.code)
		if data, unseen := dataOf(&in); data != 0 || !unseen {
			t.Errorf("%s: %#x, %v", c.what, data, unseen)
		}
	}
}

func decode(t *testing.T, code string) x86.Inst {
	t.Helper()
	b, err := hex.DecodeString(code)
	if err != nil {
		t.Fatal(err)
	}
	in, err := x86.Decode(b)
	if err != nil {
		t.Fatal(code, err)
	}
	return in
}

func FuzzLanes(f *testing.F) {
	for _, code := range []string{"d7", "f3a6", "c4e265910c90", "62f1ffa96f08"} {
		b, _ := hex.DecodeString(code)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := x86.Decode(b)
		if err != nil {
			return
		}
		data, _ := dataOf(&in)
		if orders(&in, data) && data == 0 {
			t.Errorf("%v orders, and tells nothing", in)
		}
		if data&lanes != 0 && data&judged != 0 {
			t.Errorf("%v: %#x", in, data)
		}
	})
}
