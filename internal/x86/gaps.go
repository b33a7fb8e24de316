package x86

import (
	"strconv"
	"strings"
)

// gapTable holds the encodings that x86asm does not know or gets wrong, one a line: mandatory prefix (np: none of 66, f2, f3; any), opcode, and
// behind it a whole ModRM byte or /reg and m or r for memory or register; then the mnemonic and its operands. XOP encodings name their map.
//
// Operands: E register or memory, M memory, R register, by ModRM.rm; G register by ModRM.reg; their size follows: b, w, d, q, v (by
// operand size), y (4, or 8 with REX.W), x (a vector, or 16 bytes), a number (bytes), a (address size). V, H, W: vector by ModRM.reg, by
// vvvv, by ModRM.rm or memory. P and Q: an mmx register by ModRM.reg, by ModRM.rm or memory. Hy: a general register by vvvv. Ib, Iw, Id: immediates. X: the W of two
// operands that XOP.W or VEX.W swaps; with a vector by the immediate's high half, L; Z is its low half.
const gapTable = `
f3 90 = pause
any 9b = fwait
any cc = int3
any db e0 = fneni
any db e1 = fndisi
any db e4 = fnsetpm
any db e5 = frstpm
np 0f c7 /6r = rdrand Rv
66 0f c7 /6r = rdrand Rv
np 0f c7 /7r = rdseed Rv
66 0f c7 /7r = rdseed Rv
any 0f 0f = 3dnow P Q Ib
f3 0f 1e fa = endbr64
f3 0f 1e fb = endbr32
f3 0f 1e /1r = rdssp Ry
np 0f 01 ee = rdpkru
np 0f 01 ef = wrpkru
np 0f 01 d0 = xgetbv
np 0f 01 d1 = xsetbv
np 0f 01 d4 = vmfunc
np 0f 01 d5 = xend
np 0f 01 d6 = xtest
np 0f 01 d7 = enclu
np 0f 01 c0 = enclv
np 0f 01 c1 = vmcall
np 0f 01 c2 = vmlaunch
np 0f 01 c3 = vmresume
np 0f 01 c4 = vmxoff
np 0f 01 c5 = pconfig
np 0f 01 c8 = monitor
np 0f 01 c9 = mwait
np 0f 01 ca = clac
np 0f 01 cb = stac
np 0f 01 cf = encls
any 0f 01 d8 = vmrun
any 0f 01 d9 = vmmcall
any 0f 01 da = vmload
any 0f 01 db = vmsave
any 0f 01 dc = stgi
any 0f 01 dd = clgi
any 0f 01 de = skinit
any 0f 01 df = invlpga
np 0f 01 e8 = serialize
f3 0f 01 e8 = setssbsy
f2 0f 01 e8 = xsusldtrk
f2 0f 01 e9 = xresldtrk
f3 0f 01 ea = saveprevssp
f3 0f 01 ec = uiret
f3 0f 01 ed = testui
f3 0f 01 ee = clui
f3 0f 01 ef = stui
any 0f 01 f9 = rdtscp
any 0f 01 fa = monitorx
any 0f 01 fb = mwaitx
any 0f 01 fc = clzero
any 0f 01 fd = rdpru
f3 0f 01 /5m = rstorssp Mq
f3 0f ae /6m = clrssbsy Mq
f3 0f ae /5r = incssp Ry
f3 0f ae /4 = ptwrite Ey
66 0f ae /6r = tpause Ry
f2 0f ae /6r = umwait Ry
f3 0f ae /6r = umonitor Ra
66 0f ae /6m = clwb Mb
66 0f ae /7m = clflushopt Mb
np 0f ae /5r = lfence
np 0f ae /6r = mfence
np 0f ae /7r = sfence
np 0f ae /0m = fxsave M512
np 0f ae /1m = fxrstor M512
f3 0f c7 /7r = rdpid Rq
f3 0f c7 /6r = senduipi Rq
np 0f c7 /6m = vmptrld Mq
66 0f c7 /6m = vmclear Mq
f3 0f c7 /6m = vmxon Mq
np 0f c7 /7m = vmptrst Mq
np 0f 78 = vmread Eq Gq
np 0f 79 = vmwrite Gq Eq
any 0f 37 = getsec
any 0f 0e = femms
f3 0f 09 = wbnoinvd
any 0f 0d /1m = prefetchw Mb
any 0f 0d /2m = prefetchwt1 Mb
any 0f 0d /3m = prefetchw Mb
any 0f 0d m = prefetch Mb
np 0f 1c /0m = cldemote Mb
any 0f 18 /7m = nop Ev
any 0f 18 /6m = nop Ev
any 0f 18 /5m = nop Ev
any 0f 18 /4m = nop Ev
any 0f 18 r = nop Ev
any 0f 19 = nop Ev
any 0f 1a = nop Ev
any 0f 1b = nop Ev
any 0f 1c = nop Ev
any 0f 1d = nop Ev
any 0f 1e = nop Ev
any 0f 1f = nop Ev
any 0f b9 = ud1 Gv Ev
any 0f ff = ud0 Gv Ev
66 0f 38 f6 = adcx Gy Ey
f3 0f 38 f6 = adox Gy Ey
np 0f 38 f6 m = wrss My Gy
66 0f 38 f5 m = wruss My Gy
66 0f 38 80 m = invept Gq Mx
66 0f 38 81 m = invvpid Gq Mx
66 0f 38 82 m = invpcid Gq Mx
np 0f 38 fc m = aadd My Gy
66 0f 38 fc m = aand My Gy
f3 0f 38 fc m = axor My Gy
f2 0f 38 fc m = aor My Gy
np 0f 38 f9 m = movdiri My Gy
66 0f 38 f8 m = movdir64b Ga M64
f2 0f 38 f8 m = enqcmd Ga M64
f3 0f 38 f8 m = enqcmds Ga M64
66 0f 38 cf = gf2p8mulb V W
66 0f 3a ce = gf2p8affineqb V W Ib
66 0f 3a cf = gf2p8affineinvqb V W Ib
f3 0f 38 dc m = aesenc128kl V M48
f3 0f 38 dd m = aesdec128kl V M48
f3 0f 38 de m = aesenc256kl V M64
f3 0f 38 df m = aesdec256kl V M64
f3 0f 38 d8 /0m = aesencwide128kl M48
f3 0f 38 d8 /1m = aesdecwide128kl M48
f3 0f 38 d8 /2m = aesencwide256kl M64
f3 0f 38 d8 /3m = aesdecwide256kl M64
f3 0f 38 dc r = loadiwkey V W
f3 0f 38 fa r = encodekey128 Gd Rd
f3 0f 38 fb r = encodekey256 Gd Rd
f3 0f 3a f0 c0 = hreset Ib
66 0f 78 /0r = extrq W Iw
66 0f 79 r = extrq V W
f2 0f 78 r = insertq V W Iw
f2 0f 79 r = insertq V W
vex.np 0f 77 = vzeroupper
vex.66 0f 38 e0 m = cmpoxadd My Gy Hy
vex.66 0f 38 e1 m = cmpnoxadd My Gy Hy
vex.66 0f 38 e2 m = cmpbxadd My Gy Hy
vex.66 0f 38 e3 m = cmpnbxadd My Gy Hy
vex.66 0f 38 e4 m = cmpzxadd My Gy Hy
vex.66 0f 38 e5 m = cmpnzxadd My Gy Hy
vex.66 0f 38 e6 m = cmpbexadd My Gy Hy
vex.66 0f 38 e7 m = cmpnbexadd My Gy Hy
vex.66 0f 38 e8 m = cmpsxadd My Gy Hy
vex.66 0f 38 e9 m = cmpnsxadd My Gy Hy
vex.66 0f 38 ea m = cmppxadd My Gy Hy
vex.66 0f 38 eb m = cmpnpxadd My Gy Hy
vex.66 0f 38 ec m = cmplxadd My Gy Hy
vex.66 0f 38 ed m = cmpnlxadd My Gy Hy
vex.66 0f 38 ee m = cmplexadd My Gy Hy
vex.66 0f 38 ef m = cmpnlexadd My Gy Hy
vex.66 0f 3a 5c = vfmaddsubps V H X L
vex.66 0f 3a 5d = vfmaddsubpd V H X L
vex.66 0f 3a 5e = vfmsubaddps V H X L
vex.66 0f 3a 5f = vfmsubaddpd V H X L
vex.66 0f 3a 68 = vfmaddps V H X L
vex.66 0f 3a 69 = vfmaddpd V H X L
vex.66 0f 3a 6a = vfmaddss V H Xd L
vex.66 0f 3a 6b = vfmaddsd V H Xq L
vex.66 0f 3a 6c = vfmsubps V H X L
vex.66 0f 3a 6d = vfmsubpd V H X L
vex.66 0f 3a 6e = vfmsubss V H Xd L
vex.66 0f 3a 6f = vfmsubsd V H Xq L
vex.66 0f 3a 78 = vfnmaddps V H X L
vex.66 0f 3a 79 = vfnmaddpd V H X L
vex.66 0f 3a 7a = vfnmaddss V H Xd L
vex.66 0f 3a 7b = vfnmaddsd V H Xq L
vex.66 0f 3a 7c = vfnmsubps V H X L
vex.66 0f 3a 7d = vfnmsubpd V H X L
vex.66 0f 3a 7e = vfnmsubss V H Xd L
vex.66 0f 3a 7f = vfnmsubsd V H Xq L
vex.66 0f 3a 48 = vpermil2ps V H X L Z
vex.66 0f 3a 49 = vpermil2pd V H X L Z
xop.8 c0 = vprotb V W Ib
xop.8 c1 = vprotw V W Ib
xop.8 c2 = vprotd V W Ib
xop.8 c3 = vprotq V W Ib
xop.8 a2 = vpcmov V H X L
xop.8 a3 = vpperm V H X L
xop.8 a6 = vpmadcsswd V H W L
xop.8 b6 = vpmadcswd V H W L
xop.9 90 = vprotb V X
xop.9 91 = vprotw V X
xop.9 92 = vprotd V X
xop.9 93 = vprotq V X
xop.9 01 /1 = blcfill Hy Ey
xop.9 01 /2 = blsfill Hy Ey
xop.9 01 /3 = blcs Hy Ey
xop.9 01 /4 = tzmsk Hy Ey
xop.9 01 /5 = blcic Hy Ey
xop.9 01 /6 = blsic Hy Ey
xop.9 01 /7 = t1mskc Hy Ey
xop.9 02 /1 = blcmsk Hy Ey
xop.9 02 /6 = blci Hy Ey
xop.10 10 = bextr Gy Ey Id
`

// gap is a line of gapTable.
type gap struct {
	form  form
	pp    int // -1: any
	digit int // ModRM.reg, -1: any
	exact int // the whole ModRM byte, -1: any
	mem   int // 1: memory, 0: register, -1: any
	name  string
	args  []string
}

var gaps = gapRows()

func gapKey(f form, opmap, op uint8) int { return int(f)<<16 | int(opmap)<<8 | int(op) }

func gapRows() map[int][]gap {
	rows := map[int][]gap{}
	for _, line := range strings.Split(strings.TrimSpace(gapTable), "\n") {
		enc, does, ok := strings.Cut(line, " = ")
		if !ok {
			panic("BUG: x86: gap without '=': " + line)
		}
		in, out := strings.Fields(enc), strings.Fields(does)
		g := gap{pp: -1, digit: -1, exact: -1, mem: -1, name: out[0], args: out[1:]}
		opmap := uint8(0)
		p := in[0]
		if s, ok := strings.CutPrefix(p, "xop."); ok {
			n, err := strconv.Atoi(s)
			if err != nil {
				panic("BUG: x86: gap: " + line)
			}
			g.form, opmap = formXOP, uint8(n)
		} else {
			if s, ok := strings.CutPrefix(p, "vex."); ok {
				g.form, p = formVEX, s
			}
			g.pp = map[string]int{"np": 0, "66": 1, "f3": 2, "f2": 3, "any": -1}[p]
		}
		in = in[1:]
		if len(in) > 1 && in[0] == "0f" && in[1] == "0f" {
			opmap, in = 15, in[1:]
		} else if in[0] == "0f" {
			opmap, in = 1, in[1:]
			if len(in) > 1 && (in[0] == "38" || in[0] == "3a") {
				opmap = map[string]uint8{"38": 2, "3a": 3}[in[0]]
				in = in[1:]
			}
		}
		op, err := strconv.ParseUint(in[0], 16, 8)
		if err != nil {
			panic("BUG: x86: gap: " + line)
		}
		if len(in) > 1 {
			s := in[1]
			switch {
			case s == "m" || s == "r":
			case s[0] == '/':
				g.digit = int(s[1] - '0')
			default:
				n, err := strconv.ParseUint(s, 16, 8)
				if err != nil {
					panic("BUG: x86: gap: " + line)
				}
				g.exact = int(n)
			}
			switch s[len(s)-1] {
			case 'm':
				g.mem = 1
			case 'r':
				g.mem = 0
			}
		}
		k := gapKey(g.form, opmap, uint8(op))
		rows[k] = append(rows[k], g)
	}
	return rows
}

// gap finds the line for the instruction, if there is one.
func (l *layout) gap() *gap {
	rows := gaps[gapKey(l.form, l.opmap, l.op)]
	for i := range rows {
		g := &rows[i]
		if g.pp >= 0 && int(l.pp) != g.pp || g.exact >= 0 && int(l.modrm) != g.exact || g.digit >= 0 && int(l.reg()) != g.digit ||
			g.mem >= 0 && (g.mem == 1) != l.mem() || l.form == formXOP && l.pp != 0 {
			continue
		}
		return g
	}
	return nil
}

// gpr gives general register n of the size in bytes.
func (l *layout) gpr(n uint8, size int) Reg {
	switch size {
	case 1:
		if n >= 4 && n < 8 && !l.hasREX {
			return AH + Reg(n-4)
		}
		return AL + Reg(n&15)
	case 2:
		return AX + Reg(n&15)
	case 4:
		return EAX + Reg(n&15)
	}
	return RAX + Reg(n&15)
}

// opSize gives the operand size of an instruction that REX.W and the prefix decide.
func (l *layout) opSize() int {
	switch {
	case l.w():
		return 8
	case l.data16 && l.form == formLegacy:
		return 2
	}
	return 4
}

// fill sets the operands of an instruction that gapTable knows.
func (g *gap) fill(in *Inst, l *layout, code []byte) {
	vec := XMM0
	one := strings.HasPrefix(g.name, "vf") && strings.HasSuffix(g.name, "ss") || strings.HasPrefix(g.name, "vf") && strings.HasSuffix(g.name, "sd")
	if l.l == 1 && l.form != formLegacy && !one {
		vec = YMM0
	}
	rm := l.rm() | l.rex&1<<3
	reg := l.reg() | l.rex&4<<1
	memory := func(size int) {
		m := l.address()
		m.Size = uint16(size)
		in.Mems = append(in.Mems, m)
		in.Args = append(in.Args, Arg{Kind: ArgMem})
	}
	register := func(r Reg) { in.Args = append(in.Args, Arg{Kind: ArgReg, Reg: r}) }
	for _, a := range g.args {
		size := 0
		if len(a) > 1 {
			switch a[1] {
			case 'b':
				size = 1
			case 'w':
				size = 2
			case 'd':
				size = 4
			case 'q':
				size = 8
			case 'x':
				size = 16
			case 'v':
				size = l.opSize()
			case 'y':
				size = 4
				if l.w() {
					size = 8
				}
			case 'a':
				size = 8
				if l.addr32 {
					size = 4
				}
			default:
				size, _ = strconv.Atoi(a[1:])
			}
		}
		c := a[0]
		if c == 'X' { // XOP.W: the memory operand comes last of the two
			c = 'W'
		}
		switch c {
		case 'E', 'M', 'R':
			if l.mem() {
				memory(size)
			} else {
				register(l.gpr(rm, size))
			}
		case 'G':
			register(l.gpr(reg, size))
		case 'V':
			register(vec + Reg(reg))
		case 'W':
			if l.mem() {
				if size == 0 {
					size = vec.Size()
				}
				memory(size)
			} else {
				register(vec + Reg(rm))
			}
		case 'Z':
			in.Args = append(in.Args, Arg{Kind: ArgImm, Imm: int64(code[l.immOff] & 15)})
		case 'H':
			if len(a) > 1 {
				register(l.gpr(l.vvvv, size))
			} else {
				register(vec + Reg(l.vvvv&15))
			}
		case 'P':
			register(MM0 + Reg(l.reg()))
		case 'Q':
			if l.mem() {
				memory(8)
			} else {
				register(MM0 + Reg(l.rm()))
			}
		case 'L':
			register(vec + Reg(code[l.immOff]>>4))
		case 'I':
			v := int64(0)
			for i := l.immLen - 1; i >= 0; i-- {
				v = v<<8 | int64(code[l.immOff+i])
			}
			in.Args = append(in.Args, Arg{Kind: ArgImm, Imm: v})
		}
		if a[0] == 'X' && l.opmap == 9 {
			register(vec + Reg(l.vvvv&15))
		}
	}
	if l.form == formVEX && l.w() && len(in.Args) > 3 { // FMA4 and vpermil2: likewise the third and fourth
		in.Args[2], in.Args[3] = in.Args[3], in.Args[2]
	}
	if l.form == formXOP && l.w() && l.opmap < 10 {
		// W swaps the operands at the end: rm with vvvv (map 9) or with the immediate's register (map 8).
		if n := len(in.Args); l.opmap == 9 && l.op >= 0x90 || l.opmap == 8 && n == 4 {
			in.Args[n-2], in.Args[n-1] = in.Args[n-1], in.Args[n-2]
		}
	}
	switch {
	case g.name == "vzeroupper" && l.l == 1:
		in.Op = "vzeroall"
	case g.name == "rdssp" || g.name == "incssp" || g.name == "wrss" || g.name == "wruss":
		in.Op = g.name + map[bool]string{false: "d", true: "q"}[l.w()]
	case (g.name == "fxsave" || g.name == "fxrstor") && l.w():
		in.Op = g.name + "64"
	default:
		in.Op = g.name
	}
}
