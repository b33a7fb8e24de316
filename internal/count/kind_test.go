package count

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/ripstop/ripstop/internal/x86"
)

// One instruction of each sort: its bytes, as GNU as gives them, its Intel syntax, what it counts as and the size of its access.
const classified = `
48 8b 03                | mov rax, [rbx]                 | load 8
88 03                   | mov [rbx], al                  | store 1
83 03 01                | add dword ptr [rbx], 1         | read-write 4
66 83 3b 01             | cmp word ptr [rbx], 1          | load 2
f0 48 83 03 01          | lock add qword ptr [rbx], 1    | locked 8
87 03                   | xchg [rbx], eax                | locked 4
0f b1 03                | cmpxchg [rbx], eax             | read-write 4
f0 48 0f c7 0b          | lock cmpxchg16b [rbx]          | locked 16
a4                      | movsb                          | string 1
f3 48 a5                | rep movsq                      | string 8
f3 a6                   | repe cmpsb                     | string 1
f3 ab                   | rep stosd                      | string 4
66 ad                   | lodsw                          | string 2
c4 e2 65 90 0c 90       | vpgatherdd ymm1, [rax+ymm2*4]  | gather 4
62 f2 fd 49 a1 0c d0    | vpscatterqq [rax+zmm2*8] {k1}  | scatter 8
c4 e2 6d 2c 08          | vmaskmovps ymm1, ymm2, [rax]   | masked-load 32
c4 e2 71 2f 10          | vmaskmovpd [rax], xmm1, xmm2   | masked-store 16
62 f1 7f 49 6f 08       | vmovdqu8 zmm1 {k1}, [rax]      | masked-load 64
62 f1 7e 4a 7f 08       | vmovdqu32 [rax] {k2}, zmm1     | masked-store 64
62 f2 7d 4a 8b 08       | vpcompressd [rax] {k2}, zmm1   | masked-store 64
66 0f f7 ca             | maskmovdqu xmm1, xmm2          | masked-store 16
66 0f 38 2a 08          | movntdqa xmm1, [rax]           | stream-load 16
c5 fc 2b 08             | vmovntps [rax], ymm1           | stream-store 32
0f c3 08                | movnti [rax], ecx              | stream-store 4
66 0f 38 f8 01          | movdir64b rax, [rcx]           | stream-store 64
50                      | push rax                       | stack 8
66 50                   | push ax                        | stack 2
ff 30                   | push qword ptr [rax]           | load 8
5b                      | pop rbx                        | stack 8
8f 00                   | pop qword ptr [rax]            | store 8
ff d0                   | call rax                       | stack 8
ff 10                   | call qword ptr [rax]           | load 8
ff 25 08 00 00 00       | jmp qword ptr [rip+8]          | load 8
c3                      | ret                            | stack 8
c9                      | leave                          | stack 8
c8 10 00 00             | enter 16, 0                    | stack 8
48 8d 43 04             | lea rax, [rbx+4]               | -
0f 1f 00                | nop dword ptr [rax]            | -
0f 18 08                | prefetcht0 [rax]               | -
0f ae 38                | clflush [rax]                  | -
89 c8                   | mov eax, ecx                   | -
0f 05                   | syscall                        | -
62 f1 6c 58 58 08       | vaddps zmm1, zmm2, [rax]{1to16}| load 4
0f ab 08                | bts [rax], ecx                 | read-write 4
0f ba 20 03             | bt dword ptr [rax], 3          | load 4
db 28                   | fld tbyte ptr [rax]            | load 10
0f ae 00                | fxsave [rax]                   | store 512
0f ae 20                | xsave [rax]                    | store 0
d7                      | xlatb                          | load 1
64 48 8b 04 25 00 00 00 00 | mov rax, fs:[0]             | load 8
48 89 4c 24 08          | mov [rsp+8], rcx               | store 8
`

// Each sort of instruction is of the kind that the table says.
func TestClassify(t *testing.T) {
	seen := [Kinds]bool{}
	for line := range strings.Lines(strings.TrimSpace(classified)) {
		f := strings.Split(line, "|")
		code, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(f[0]), " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		in, err := x86.Decode(code)
		if err != nil || in.Len != len(code) {
			t.Errorf("%s: %v, %d bytes", f[1], err, in.Len)
			continue
		}
		got := "-"
		if a, ok := Classify(&in); ok {
			got = fmt.Sprintf("%v %d", a.Kind, a.Size)
			seen[a.Kind] = true
		}
		if want := strings.TrimSpace(f[2]); got != want {
			t.Errorf("%s: %s, want %s", strings.TrimSpace(f[1]), got, want)
		}
	}
	for k := range Kinds {
		if !seen[k] {
			t.Errorf("the table has no %v", k)
		}
		if k.String() == "" || k.String() == "?" {
			t.Errorf("kind %d has no name", k)
		}
	}
}
