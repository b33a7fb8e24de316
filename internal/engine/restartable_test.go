package engine

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ripstop/ripstop/internal/image"
)

// Restartable sequences (librseq, tcmalloc) are found in position-independent code and other: a store of theirs that ran in a trampoline would be done though
// the kernel had moved the thread to another processor in between.
func TestRestartable(t *testing.T) {
	const source = `
__asm__(".pushsection __rseq_cs, \"aw\"\n.balign 32\ncs:\n.long 0, 0\n.quad begin, commit - begin, aborted\n.popsection\n"
	".pushsection .text\n.globl sequence\n.type sequence, @function\nsequence:\n nop\n"
	".globl begin\nbegin: movl 4(%rdi), %eax\n incq (%rsi,%rax,8)\n.globl commit\ncommit: ret\n"
	".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\naborted: jmp sequence\n.size sequence, .-sequence\n.popsection\n");
int main(void) { return 0; }
`
	dir := t.TempDir()
	c := filepath.Join(dir, "x.c")
	if err := os.WriteFile(c, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"-pie", "-no-pie"} {
		prog := filepath.Join(dir, "x"+flag)
		if out, err := exec.Command("gcc", flag, "-fPIE", "-g", "-o", prog, c).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		img, err := image.Open(prog)
		if err != nil {
			t.Fatal(err)
		}
		defer img.Close()
		list := restartable(img)
		if len(list) != 1 || list[0][1]-list[0][0] != 7 {
			t.Fatalf("%s: %#x", flag, list)
		}
		if b := img.Bytes(list[0][0], 8); string(b) != "\x8b\x47\x04\x48\xff\x04\xc6\xc3" {
			t.Errorf("%s: at %#x is % x", flag, list[0][0], b)
		}
	}
}
