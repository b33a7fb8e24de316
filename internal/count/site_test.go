package count

import (
	"bytes"
	"debug/elf"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/ripstop/ripstop/internal/engine"
	"github.com/ripstop/ripstop/internal/recipe"
	"github.com/ripstop/ripstop/internal/x86"
)

// The form of an instruction, with its cell put in, is what compiling its recipe gives, for all memory instructions of libc and libx264; and what is known to be live before
// them is no less than what a look at the instructions behind each one gives.
func TestForms(t *testing.T) {
	env := recipe.Env{Save: -200, Slots: recipe.MaxSlots}
	for _, pattern := range []string{"libc.so.6", "libx264.so.*"} {
		files, _ := filepath.Glob("/usr/lib/x86_64-linux-gnu/" + pattern)
		if len(files) == 0 {
			t.Fatalf("no %s: install libx264-dev or x264", pattern)
		}
		f, err := elf.Open(files[0])
		if err != nil {
			t.Fatal(err)
		}
		sec := f.Section(".text")
		code, err := sec.Data()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		k := &cells{addr: 0x10000, bias: 0x7f0000000000}
		forms := map[need]uint32{}
		less := 0
		w := window{assume: x86.AssumeNoHandler}
		w.ready = func(in *engine.Insn, live x86.Live) {
			if a, ok := Classify(&in.Inst); !ok || a.Kind == Stack {
				return
			}
			alone := x86.Liveness(x86.Block(in.Code, lookahead), w.assume)[0]
			if live.Flags&^alone.Flags != 0 || live.Regs&^alone.Regs != 0 {
				less++
			}
			if far := x86.Liveness(x86.Block(in.Code, 3*lookahead), w.assume)[0]; far.Flags&^live.Flags != 0 || far.Regs&^live.Regs != 0 {
				t.Fatalf("%#x: %+v are live, said are %+v", in.At, far, live)
			}
			n := needOf(&in.Inst, live)
			id, ok := forms[n]
			if !ok {
				id = uint32(len(k.forms))
				forms[n] = id
				made, err := makeForm(in, live, env)
				if err != nil {
					t.Fatal(err)
				}
				k.forms = append(k.forms, made)
			}
			s := &site{k, uint32(len(k.insts)), id}
			k.insts = append(k.insts, Inst{Addr: in.At - k.bias})
			want, err := recipe.Compile([]recipe.Op{recipe.Count{Cell: k.addr + 8*uint64(s.i), Of: recipe.Shared}}, recipe.Site{At: in.At, Inst: in.Inst, Code: in.Code}, live, env)
			if err != nil {
				t.Fatal(err)
			}
			wantCode, wantStates, err := want.Append([]byte{1}, in.At+1<<30)
			if err != nil {
				t.Fatal(err)
			}
			gotCode, gotStates, err := s.Append([]byte{1}, in.At+1<<30)
			if err != nil || !bytes.Equal(gotCode, wantCode) || !reflect.DeepEqual(gotStates, wantStates) || s.Size() != want.Size() {
				t.Fatalf("%#x, %v: % x, %+v, %v; want % x, %+v", in.At, in.Inst, gotCode, gotStates, err, wantCode, wantStates)
			}
		}
		for at := 0; at < len(code); {
			in, err := x86.Decode(code[at:])
			if err != nil {
				at++
				continue
			}
			w.add(&engine.Insn{At: k.bias + sec.Addr + uint64(at), Inst: in, Code: code[at:]})
			at += in.Len
		}
		w.flush(len(w.insns))
		t.Logf("%s: %d instructions, %d forms; before %d less is known than by looking %d instructions far", files[0], len(k.insts), len(k.forms), less, lookahead)
		if less > len(k.insts)/1000 {
			t.Errorf("%s: before %d of %d instructions less is known to be dead", files[0], less, len(k.insts))
		}
	}
}
