package recipe

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
)

// What cannot be made is an error that says why, not other code.
func TestRefused(t *testing.T) {
	env := Env{Save: -64, Slots: MaxSlots, Cells: -8, Context: -16, XSave: XSave{Mask: 7, Size: 832}}
	with := func(f func(*Env)) Env {
		e := env
		f(&e)
		return e
	}
	count, gs := Count{Cell: 0x1000}, GS{}
	for _, x := range []struct {
		code string
		ops  []Op
		env  Env
		err  error
	}{
		{"488b03", []Op{count, gs}, env, nil},
		{"488b03", []Op{gs, count}, env, ErrOrder},
		{"488b03", []Op{Check{Then: []Op{Emulate{General: true}, gs}}}, env, ErrOrder},
		{"488b03", []Op{nil}, env, ErrOp},
		{"488b03", []Op{&count}, env, ErrOp},
		{"488b03", []Op{Count{Of: 3}}, env, ErrOp},
		{"488b03", []Op{Check{Bits: 65}}, env, ErrOp},
		{"488b03", []Op{Check{Shift: 64}}, env, ErrOp},
		{"488b03", []Op{Check{Bits: 12, Shift: 12}}, env, ErrOp},
		{"488b03", []Op{Check{Mem: 1}}, env, ErrAddress},
		{"488b03", []Op{Check{Mem: -1}}, env, ErrAddress},
		{"65488b03", []Op{Check{}}, env, ErrAddress},               // gs:
		{"64488b03", []Op{Check{}}, env, nil},                      // fs:
		{"c4e27d900c0b", []Op{Check{}}, env, ErrAddress},           // a gather
		{"480fa303", []Op{Check{}}, env, ErrAddress},               // bt [rbx], rax
		{"480fba2305", []Op{Check{}}, env, nil},                    // bt [rbx], 5
		{"488d03", []Op{Check{}}, env, ErrAddress},                 // lea
		{"d7", []Op{Check{}}, env, ErrAddress},                     // xlat
		{"48a4", []Op{Check{Mem: 1, Then: []Op{count}}}, env, nil}, // movsb
		{"48a4", []Op{gs}, env, x86.ErrNoGS},                       // whose destination goes by es
		{"64488b03", []Op{gs}, env, x86.ErrNoGS},                   //
		{"4889c3", []Op{gs}, env, x86.ErrNoGS},                     // no memory
		{"ff33", []Op{gs}, env, nil},                               // push [rbx]
		{"c3", []Op{gs}, env, x86.ErrNoGS},                         //
		{"ff13", []Op{gs}, env, ErrFlow},                           // call [rbx]
		{"ff13", []Op{count, Check{Then: []Op{count}}}, env, nil},  //
		{"7405", []Op{Emulate{General: true}}, env, ErrFlow},       //
		{"488b03", []Op{Hook{}}, env, ErrFlow},                     //
		{"0f05", []Op{Hook{}}, env, nil},                           //
		{"0f05", []Op{Emulate{General: true}}, Env{}, ErrEnv},      //
		{"488b03", []Op{Call{}}, env, nil},                         //
		{"488b03", []Op{Call{}}, with(func(e *Env) { e.XSave = XSave{} }), ErrEnv},
		{"488b03", []Op{Call{General: true}}, with(func(e *Env) { e.Slots = 1 }), ErrEnv},
		{"488b03", []Op{Call{General: true}}, with(func(e *Env) { e.Context = 0 }), ErrEnv},
		{"488b03", []Op{Count{Of: PerThread}}, with(func(e *Env) { e.Cells = 0 }), ErrEnv},
		{"488b03", []Op{count}, with(func(e *Env) { e.Slots = 0 }), ErrEnv},
		{"488b03", nil, Env{}, nil},
	} {
		code, err := hex.DecodeString(x.code)
		if err != nil {
			t.Fatal(err)
		}
		in, err := x86.Decode(code)
		if err != nil {
			t.Fatalf("%s: %v", x.code, err)
		}
		c, err := Compile(x.ops, Site{At: 0x401000, Inst: in, Code: code}, x86.AllLive, x.env)
		if !errors.Is(err, x.err) || (c == nil) != (x.err != nil) {
			t.Errorf("%v, %+v: %v, want %v", in, x.ops, err, x.err)
		}
	}
}

// A list without operations is no code at all, and one that ends in GS holds the instruction itself.
func TestEmpty(t *testing.T) {
	in, err := x86.Decode([]byte{0x48, 0x8b, 0x03})
	if err != nil {
		t.Fatal(err)
	}
	site := Site{At: 0x401000, Inst: in, Code: []byte{0x48, 0x8b, 0x03}}
	c, err := Compile(nil, site, x86.AllLive, Env{})
	if err != nil || c.Size() != 0 || c.Replaces() {
		t.Errorf("%+v, %v", c, err)
	}
	if code, states, err := c.Append(nil, 0x500000); len(code)+len(states) != 0 || err != nil {
		t.Errorf("% x, %v, %v", code, states, err)
	}
	c, err = Compile([]Op{GS{}}, site, x86.AllLive, Env{})
	if err != nil || !c.Replaces() {
		t.Fatalf("%+v, %v", c, err)
	}
	if code, _, err := c.Append(nil, 0x500000); hex.EncodeToString(code) != "65488b03" || err != nil {
		t.Errorf("% x, %v", code, err)
	}
}
