package ctest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What printf and scanf access behind their arguments is what the C library takes these for, of formats by the rules and of any bytes: one argument taken for another would be read as a string, in the program.
func TestFormats(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "format_driver")
	if out, err := exec.Command("gcc", "-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-const-variable", "-Wno-deprecated-declarations", "-I..", "-fsanitize=address,undefined", "-fno-sanitize-recover", "-o", exe,
		"testdata/format_driver.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	some := func(s string) string { return pick("", "", s) }
	any := func() string {
		const bytes = "%%%%$*.0123456789lhjzLqtsdnpcfm[]^-aSC "
		b := make([]byte, r.IntN(20))
		for i := range b {
			b[i] = bytes[r.IntN(len(bytes))]
		}
		return string(b)
	}
	printf := func() string {
		var f strings.Builder
		numbered := r.IntN(2) == 0
		number := func(kind int) string { // each number means the same in all of the format
			if numbered {
				return fmt.Sprintf("%d$", 1+2*kind+r.IntN(2))
			}
			return ""
		}
		for range 1 + r.IntN(6) {
			const ints, longs, texts, doubles, longDoubles, stores, pointers = 0, 1, 2, 3, 4, 5, 6
			what := pick("d", "hd", "hhu", "c", "ld", "llx", "zu", "jo", "ti", "Li", "qd", "s", "s", "s", "ls", "S", "f", "g", "La", "Le", "n", "hhn", "m", "C", "lc", "p")
			kind := ints
			switch {
			case strings.ContainsAny(what, "sS"):
				kind = texts
			case what == "p":
				kind = pointers
			case what == "n" || what == "hhn":
				kind = stores
			case strings.ContainsAny(what[:1], "lzjtLq") && strings.ContainsAny(what, "dxuoi"):
				kind = longs
			case what == "f" || what == "g":
				kind = doubles
			case what[0] == 'L':
				kind = longDoubles
			}
			f.WriteString(some("text ") + "%" + number(kind) + some(pick("-", "+", " ", "#", "0", "'")))
			if r.IntN(3) == 0 {
				f.WriteString(pick("12", "*"+number(ints)))
			}
			if r.IntN(3) == 0 {
				f.WriteString("." + pick("", "3", "*"+number(ints)))
			}
			f.WriteString(what)
		}
		return f.String()
	}
	scanf := func() (format, input string) {
		var f, in strings.Builder
		numbered := r.IntN(3) == 0
		for i := range 1 + r.IntN(5) {
			own, star := "", some("*")
			if numbered {
				own = fmt.Sprintf("%d$", 6-i)
			}
			n := own
			if star != "" {
				n = ""
			}
			switch r.IntN(6) {
			case 0:
				f.WriteString("%" + n + star + pick("", "3", "12") + pick("hh", "h", "l", "ll", "") + pick("d", "u", "x", "i") + " ")
			case 1:
				f.WriteString("%" + n + star + pick("", "4", "20") + some("m") + pick("s", "[a-z]", "[^ ]", "[]x]", "[^]x]") + " ")
			case 2:
				f.WriteString("%" + n + star + pick("", "2") + "c")
			case 3:
				f.WriteString("%" + n + star + pick("", "l", "L") + pick("f", "g") + " ")
			case 4:
				f.WriteString("%" + own + pick("", "h", "ll") + "n")
			default:
				f.WriteString(pick("%%", " ", "x"))
			}
			in.WriteString(pick("12", "-7", "abc", "x", "0x1f", "2.5", "%", "") + pick(" ", " ", ""))
		}
		return f.String(), in.String()
	}
	var records bytes.Buffer
	add := func(text string) {
		binary.Write(&records, binary.LittleEndian, uint16(len(text)))
		records.WriteString(text)
	}
	for range 4_000 {
		records.WriteByte('p')
		add(printf())
		records.WriteByte('P')
		add(any())
		format, input := scanf()
		records.WriteByte('s')
		add(format)
		add(input)
		records.WriteByte('s')
		add(strings.ReplaceAll(any(), "$", "")) // a number may be of no argument
		add(any())
	}
	cmd := exec.Command(exe)
	cmd.Stdin = &records
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
