package x86

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A listed instruction is one as objdump -d -M intel shows it.
type listed struct {
	addr uint64
	text string
}

var listLine = regexp.MustCompile(`^\s*([0-9a-f]+):\t(.*)$`)

// list runs objdump and gives its instructions in order, to each.
func list(tb testing.TB, each func(listed), args ...string) {
	tb.Helper()
	args = append([]string{"-w", "--no-show-raw-insn", "-M", "intel"}, args...)
	cmd := exec.Command("objdump", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("objdump (package binutils) is needed: %v", err)
	}
	in := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if m := listLine.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			a, err := strconv.ParseUint(m[1], 16, 64)
			if err != nil {
				tb.Fatal(err)
			}
			each(listed{a, m[2]})
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		tb.Fatalf("objdump %v: %v\n%s", args, err, errs.String())
	}
}

// plain is an instruction in the form in which the two sides are compared.
type plain struct {
	op   string
	args []string // registers and memory in one spelling, immediates as a number behind '$'
	size int      // of the memory operand; 0: not said
}

var prefixWord = regexp.MustCompile(`^(lock|repz?|repnz|bnd|notrack|data16|addr32|[cdefgs]s|rex(\.[WRXB]+)?|xacquire|xrelease|\{evex\}|\{vex\})$`)

// split divides the operands at the commas outside brackets.
func split(s string) (parts []string) {
	depth, from := 0, 0
	for i, c := range s {
		switch c {
		case '[', '(':
			depth++
		case ']', ')':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, s[from:i])
				from = i + 1
			}
		}
	}
	return append(parts, s[from:])
}

var sizeWords = map[string]int{"BYTE": 1, "WORD": 2, "DWORD": 4, "FWORD": 6, "QWORD": 8, "TBYTE": 10, "OWORD": 16, "XMMWORD": 16, "YMMWORD": 32, "ZMMWORD": 64}

var predicates = strings.Fields("eq lt le unord neq nlt nle ord eq_uq nge ngt false neq_oq ge gt true eq_os lt_oq le_oq unord_s neq_us nlt_uq nle_uq " +
	"ord_s eq_us nge_uq ngt_uq false_os neq_os ge_oq gt_oq true_us")

var vectorCompare = regexp.MustCompile(`^(v?)cmp([a-z_]+?)(ps|pd|ss|sd|ph|sh)$`)
var integerCompare = regexp.MustCompile(`^vpcmp(eq|lt|le|false|neq|nlt|nle|true)?(u?[bwdq])$`)
var carryless = regexp.MustCompile(`^(v?)pclmul([lh])q([lh])qdq$`)

// fromList takes objdump's text apart. It returns false where objdump saw no instruction, and the words of prefixes before one.
func fromList(text string) (p plain, prefixes []string, ok bool) {
	if i := strings.Index(text, "#"); i >= 0 {
		text = text[:i]
	}
	words := strings.Fields(text)
	for len(words) > 0 && prefixWord.MatchString(words[0]) {
		prefixes = append(prefixes, words[0])
		words = words[1:]
	}
	if len(words) == 0 {
		return p, prefixes, true
	}
	if strings.Contains(text, "bad)") || strings.Contains(text, "bad}") || words[0] == ".byte" || strings.Contains(text, "?") || strings.Contains(text, "%") {
		return p, prefixes, false
	}
	p.op = strings.TrimSuffix(strings.TrimSuffix(words[0], ",pn"), ",pt")
	rest := strings.Join(words[1:], " ")
	if i := strings.Index(rest, " <"); i >= 0 {
		rest = rest[:i]
	}
	if rest != "" {
		for _, a := range split(rest) {
			p.args = append(p.args, p.operand(strings.TrimSpace(a)))
		}
	}
	imm := func(n int) { p.args = append(p.args, fmt.Sprintf("$%x", n)) }
	if m := vectorCompare.FindStringSubmatch(p.op); m != nil {
		for i, s := range predicates {
			if s == m[2] {
				p.op = m[1] + "cmp" + m[3]
				imm(i)
				break
			}
		}
	}
	if m := integerCompare.FindStringSubmatch(p.op); m != nil && m[1] != "" && (m[1] != "eq" || strings.HasPrefix(m[2], "u")) {
		for i, s := range strings.Fields("eq lt le false neq nlt nle true") {
			if s == m[1] {
				p.op = "vpcmp" + m[2]
				imm(i)
				break
			}
		}
	}
	if m := carryless.FindStringSubmatch(p.op); m != nil {
		n := 0
		if m[2] == "h" {
			n |= 1
		}
		if m[3] == "h" {
			n |= 16
		}
		p.op = m[1] + "pclmulqdq"
		imm(n)
	}
	switch p.op {
	case "movabs":
		p.op = "mov"
	case "movs", "cmps", "stos", "lods", "scas", "ins", "outs":
		p.op += map[int]string{1: "b", 2: "w", 4: "d", 8: "q"}[p.size]
		p.args = nil
		p.size = 0
	case "xlat":
		p.args, p.size = nil, 0
	}
	return p, prefixes, true
}

// operand gives one spelling to an operand of objdump's.
func (p *plain) operand(s string) string {
	for w, n := range sizeWords {
		for _, form := range []string{w + " PTR ", w + " BCST "} {
			if t, ok := strings.CutPrefix(s, form); ok {
				p.size, s = n, t
				break
			}
		}
	}
	seg, rest, has := strings.Cut(s, ":")
	mark := ""
	if i := strings.IndexByte(s, '{'); i >= 0 {
		mark = s[i:]
		if j := strings.Index(mark, "{1to"); j >= 0 { // the broadcast says no more than the operand's size
			if k := strings.IndexByte(mark[j:], '}'); k >= 0 {
				mark = mark[:j] + mark[j+k+1:]
			}
		}
		s = s[:i]
		seg, rest, has = strings.Cut(s, ":")
	}
	if !has {
		seg, rest = "", s
	}
	if strings.HasPrefix(rest, "[") || has {
		if seg != "fs" && seg != "gs" {
			seg = ""
		}
		return spell(seg, rest) + mark
	}
	if s == "st" {
		return "st(0)"
	}
	if n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64); err == nil && (strings.HasPrefix(s, "0x") || p.target()) {
		return fmt.Sprintf("$%x", n)
	}
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return fmt.Sprintf("$%x", uint64(n))
	}
	return s + mark
}

// target says whether the operand is a branch's: a bare hexadecimal number.
func (p *plain) target() bool {
	return p.op != "" && (p.op[0] == 'j' || p.op == "call" || strings.HasPrefix(p.op, "loop") || p.op == "xbegin")
}

// spell puts an address in one form: segment, base, index*scale and displacement.
func spell(seg, s string) string {
	s = strings.Trim(s, "[]")
	base, index, disp := "", "", uint64(0)
	s = strings.ReplaceAll(s, "-", "+-")
	for _, t := range strings.Split(s, "+") {
		switch {
		case t == "":
		case strings.HasPrefix(t, "0x"):
			n, _ := strconv.ParseUint(t[2:], 16, 64)
			disp += n
		case strings.HasPrefix(t, "-0x"):
			n, _ := strconv.ParseUint(t[3:], 16, 64)
			disp -= n
		case strings.Contains(t, "*"):
			if !strings.HasPrefix(t, "riz") && !strings.HasPrefix(t, "eiz") {
				index = t
			}
		default:
			if base == "" {
				base = t
			} else {
				index = t
			}
		}
	}
	return fmt.Sprintf("%s[%s+%s+%x]", seg, base, index, disp)
}

// fromInst gives our decoding the same form.
func fromInst(in *Inst, pc uint64) (p plain) {
	p.op = strings.TrimSuffix(in.Op, "_xmm")
	for i, a := range in.Args() {
		s := ""
		switch a.Kind {
		case ArgReg:
			s = a.Reg.String()
		case ArgMem:
			m := in.Mems()[0]
			p.size = int(m.Size)
			index := ""
			if m.Index != NoReg {
				index = fmt.Sprintf("%s*%d", m.Index, m.Scale)
			}
			seg := ""
			if m.Seg != NoReg {
				seg = m.Seg.String()
			}
			s = fmt.Sprintf("%s[%s+%s+%x]", seg, m.Base, index, uint64(m.Disp))
		case ArgImm, ArgOne:
			s = fmt.Sprintf("$%x", uint64(a.Imm))
		case ArgRel:
			t, _ := in.Target(pc)
			s = fmt.Sprintf("$%x", t)
		}
		if i == 0 && in.Mask != NoReg {
			s += "{" + in.Mask.String() + "}"
		}
		if i == 0 && in.Zeroing {
			s += "{z}"
		}
		p.args = append(p.args, s)
	}
	return p
}

// differ says how the two forms differ, "" if they do not.
func differ(in *Inst, got, want plain) string {
	want.op = alias(want.op, in)
	if far := want.op + "f"; in.Op == far && (far == "callf" || far == "jmpf") {
		want.op = far
	}
	if want.op != got.op && strings.HasPrefix(want.op, "vpcmpeq") && "vpcmp"+want.op[len("vpcmpeq"):] == got.op {
		want.op = got.op
		want.args = append(want.args, "$0")
	}
	if got.op != want.op {
		return "operation " + got.op
	}
	var wantArgs []string
	for _, a := range want.args {
		for _, m := range []string{"{sae}", "{rn-sae}", "{rd-sae}", "{ru-sae}", "{rz-sae}"} {
			a = strings.TrimSuffix(a, m)
		}
		if a != "" {
			wantArgs = append(wantArgs, a)
		}
	}
	want.args = normal(in, wantArgs)
	got.args = normal(in, got.args)
	if len(got.args) != len(want.args) {
		return fmt.Sprintf("%d operands", len(got.args))
	}
	for i := range got.args {
		g, w := got.args[i], want.args[i]
		if strings.HasPrefix(g, "$") && strings.HasPrefix(w, "$") {
			a, _ := strconv.ParseUint(g[1:], 16, 64)
			b, _ := strconv.ParseUint(w[1:], 16, 64)
			mask := ^uint64(0)
			if n := in.immBits(); n < 64 {
				mask = 1<<n - 1
			}
			if a&mask == b&mask {
				continue
			}
		}
		if g != w {
			return fmt.Sprintf("operand %d: %s", i, g)
		}
	}
	switch in.Op {
	case "movsxd": // with an operand-size prefix the source is as short, says the processor
		if got.size == 2 {
			want.size = 2
		}
	case "lss", "lfs", "lgs", "callf", "jmpf": // with REX.W objdump has AMD's size
		if got.size == 10 {
			want.size = 10
		}
	}
	if want.size != 0 && got.size != want.size && len(in.Mems()) > 0 && in.Mems()[0].Kind&(MemGather|MemScatter|MemHint|MemAddress|MemState) == 0 {
		return fmt.Sprintf("size %d", got.size)
	}
	return ""
}

// immBits is the width in which an immediate counts: the operation's.
func (in *Inst) immBits() int {
	for _, a := range in.Args() {
		if a.Kind == ArgRel {
			return 64
		}
	}
	if in.Op == "push" || in.Op == "ret" || in.Op == "retf" || in.Op == "enter" {
		return 16
	}
	for _, a := range in.Args() {
		switch {
		case a.Kind == ArgReg && a.Reg.Class() == ClassGPR && in.ImmLen > 1:
			return 8 * a.Reg.Size()
		case a.Kind == ArgReg:
			return 8
		case a.Kind == ArgMem && in.ImmLen > 1:
			return 8 * int(in.Mems()[0].Size)
		}
	}
	return 8
}

// alias gives our name for objdump's operation.
func alias(op string, in *Inst) string {
	if op == "xchg" && in.Op == "nop" { // 66 90
		return "nop"
	}
	if in.Op == "3dnow" {
		return "3dnow"
	}
	if in.Op == "nop" && (strings.HasPrefix(op, "bnd") || op == "prefetchit0" || op == "prefetchit1") { // nops unless something is turned on that we ignore
		return "nop"
	}
	if strings.Contains(op, "(") { // fneni(8087 only)
		op = op[:strings.Index(op, "(")]
	}
	if op == "prefetch" && in.Op == "prefetchw" || op == "vmgexit" && in.Op == "vmmcall" || op == "vdbpsadbw" && in.Op == "vmpsadbw" {
		return in.Op // encodings whose meaning came later than this objdump or is reserved
	}
	if s, ok := spellings[op]; ok {
		return s
	}
	return op
}

// spellings of objdump's for which we have another: the size in the name, or none where it goes without saying.
var spellings = map[string]string{
	"popf": "popfq", "pushf": "pushfq", "pushfw": "pushf", "popfw": "popf", "iret": "iretd", "iretw": "iret", "retfq": "retf", "retfw": "retf",
	"sysretd": "sysret", "sysretq": "sysret", "sysexitd": "sysexit", "sysexitq": "sysexit", "pcmpestriq": "pcmpestri", "pcmpestrmq": "pcmpestrm",
	"vpcmpestriq": "vpcmpestri", "vpcmpestrmq": "vpcmpestrm", "fldenvw": "fldenv", "fnstenvw": "fnstenv", "fnsavew": "fnsave", "frstorw": "frstor",
	"leavew": "leave", "pushw": "push", "popw": "pop", "enterw": "enter",
}

// normal drops what one side says and the other implies.
func normal(in *Inst, args []string) []string {
	if in.Op == "nop" { // what a nop names is of no consequence, and has several spellings
		return nil
	}
	switch in.Op {
	case "3dnow", "extrq", "insertq": // the suffix, and two immediates in place of one
		return args[:min(2, len(args))]
	case "lar", "lsl": // the source is 16 bits, whatever it is called
		return args[:1]
	case "movsxd": // objdump has 32 bits of source always
		if in.Args()[0].Reg.Size() == 2 && in.Args()[1].Kind == ArgReg {
			return args[:1]
		}
	case "movdq2q": // objdump names the wrong file of registers
		return args[1:]
	case "vmovss", "vmovsd", "vmovd", "vmovq": // objdump names the length that they ignore
		for i, a := range args {
			args[i] = strings.TrimLeft(a, "xyzm")
		}
		return args
	case "fneni", "fndisi", "fnsetpm", "frstpm":
		return nil
	}
	return args
}
