package drive

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
)

// input gives the path of a generated file in the shared directory, made at first use. The same name must mean the same content.
func (j *Job) input(name string, write func(w *bufio.Writer)) (string, error) {
	path := filepath.Join(j.Shared, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(j.Shared, 0o755); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(j.Shared, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	write(w)
	if err := w.Flush(); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return path, os.Rename(f.Name(), path)
}

// text gives a file of about size bytes which compresses like prose.
func (j *Job) text(size int) (string, error) {
	return j.input(fmt.Sprintf("text-%d", size), func(w *bufio.Writer) {
		r := rand.New(rand.NewSource(1))
		words := make([]string, 5000)
		for i := range words {
			b := make([]byte, 2+r.Intn(9))
			for k := range b {
				b[k] = "etaoinshrdlucmfwypvbgkjqxz"[min(r.Intn(26), r.Intn(26))]
			}
			words[i] = string(b)
		}
		often := rand.NewZipf(r, 1.1, 2, uint64(len(words)-1))
		for n := 0; n < size; {
			word := words[often.Uint64()]
			n += len(word) + 1
			w.WriteString(word)
			if r.Intn(12) == 0 {
				w.WriteByte('\n')
			} else {
				w.WriteByte(' ')
			}
		}
	})
}

// program gives a C file of so many functions, with loops, switches, floating point and calls.
func (j *Job) program(functions int) (string, error) {
	return j.input(fmt.Sprintf("program-%d.c", functions), func(w *bufio.Writer) {
		r := rand.New(rand.NewSource(3))
		w.WriteString("struct node { struct node *next; int key; double weight; char name[16]; };\nextern int out(const char *, ...);\n")
		for f := range functions {
			fmt.Fprintf(w, "int f%d(struct node *n, int *a, int k)\n{\n\tint s = %d;\n\tdouble d = %d.5;\n\tfor (int i = 0; i < k; i++) {\n", f, r.Intn(100), r.Intn(100))
			fmt.Fprintf(w, "\t\tswitch ((a[i] + s) & 7) {\n")
			for c := range 7 {
				fmt.Fprintf(w, "\t\tcase %d: s %s= a[(i * %d + %d) %% k]; break;\n", c, []string{"+", "-", "^", "*", "|"}[r.Intn(5)], r.Intn(9)+1, r.Intn(9))
			}
			fmt.Fprintf(w, "\t\tdefault: d = d * %d.25 + s;\n\t\t}\n\t}\n\tfor (struct node *p = n; p; p = p->next) {\n", r.Intn(5)+1)
			fmt.Fprintf(w, "\t\tp->weight += d / (p->key + %d);\n\t\tfor (int c = 0; p->name[c]; c++)\n\t\t\ts = s * 31 + p->name[c];\n\t}\n", r.Intn(9)+1)
			if f > 0 {
				fmt.Fprintf(w, "\tif (s > %d)\n\t\ts += f%d(n ? n->next : n, a, k / 2);\n", r.Intn(1000), r.Intn(f))
			}
			fmt.Fprintf(w, "\treturn s + (int)d + out(\"%%d\\n\", s);\n}\n")
		}
	})
}

// film gives a Y4M file of moving shapes over noise.
func (j *Job) film(width, height, frames int) (string, error) {
	return j.input(fmt.Sprintf("film-%dx%d-%d.y4m", width, height, frames), func(w *bufio.Writer) {
		r := rand.New(rand.NewSource(2))
		noise := make([]byte, 1<<16)
		r.Read(noise)
		fmt.Fprintf(w, "YUV4MPEG2 W%d H%d F25:1 Ip A1:1 C420jpeg\n", width, height)
		for f := range frames {
			w.WriteString("FRAME\n")
			for y := range height {
				for x := range width {
					v := byte((x+3*f)^(y+2*f)) / 2
					if dx, dy := x-(5*f)%width, y-height/2; dx*dx+dy*dy < height*height/16 {
						v = 200
					}
					w.WriteByte(v + noise[(x*7+y*131+f*977)&0xffff]&7)
				}
			}
			for plane := range 2 {
				for y := range height / 2 {
					for x := range width / 2 {
						w.WriteByte(byte(128 + (x+y+f+plane*40)&31))
					}
				}
			}
		}
	})
}
