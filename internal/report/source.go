package report

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ripstop/ripstop/internal/finding"
)

// sources finds source files and names them for the reader.
type sources struct {
	root    string // absolute
	mapping [][2]string
	files   map[string]sourceFile
	mtimes  map[string]time.Time // of modules
	below   map[string]bool      // relative names: is there such a file below root
}

type sourceFile struct {
	lines []string
	mtime time.Time
	err   error
}

const (
	maxSourceBytes = 8 << 20
	maxSourceFiles = 256 // kept in memory
	linesBefore    = 2
	linesAfter     = 1
	maxColumns     = 140
)

func newSources(o *Options) (*sources, error) {
	s := &sources{files: map[string]sourceFile{}, mtimes: map[string]time.Time{}, below: map[string]bool{}}
	var err error
	if s.mapping, err = parseSourceMap(o.SourceMap); err != nil {
		return nil, err
	}
	s.root = o.SourceRoot
	if s.root == "" {
		s.root = "."
	}
	if s.root, err = filepath.Abs(s.root); err != nil {
		return nil, fmt.Errorf("--source-root: %w", err)
	}
	return s, nil
}

// path is where file, as debug information names it, is looked for.
func (s *sources) path(file string) string {
	for _, m := range s.mapping {
		if rest, ok := strings.CutPrefix(file, m[0]); ok {
			return m[1] + rest
		}
	}
	return file
}

// relative is the path of file below the root, and whether it is below it. A relative name, as builds with -ffile-prefix-map leave it,
// is taken for one below the root if there is such a file: those of the C library are relative too.
func (s *sources) relative(file string) (string, bool) {
	path := s.path(file)
	if !filepath.IsAbs(path) {
		path = filepath.Clean(path)
		below, asked := s.below[path]
		if !asked {
			_, err := os.Stat(filepath.Join(s.root, path))
			below = err == nil && filepath.IsLocal(path)
			s.below[path] = below
		}
		return path, below
	}
	rel, err := filepath.Rel(s.root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return path, false
	}
	return rel, true
}

// display is the name of file that reports show.
func (s *sources) display(file string) string {
	name, _ := s.relative(file)
	return name
}

// excerpt returns the lines around the place of fr, or why there are none ("" when nothing needs to be said).
func (s *sources) excerpt(fr finding.Frame) (lines []excerptLine, why string) {
	if fr.File == "" || fr.Line <= 0 {
		return nil, ""
	}
	path := s.path(fr.File)
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.root, path)
	}
	f := s.read(path)
	if f.err != nil {
		return nil, ""
	}
	if built := s.built(fr.Module); !built.IsZero() && f.mtime.After(built) {
		return nil, fmt.Sprintf("%s is newer than %s: its lines are not shown", s.display(fr.File), filepath.Base(fr.Module))
	}
	if fr.Line > len(f.lines) {
		return nil, fmt.Sprintf("%s has only %d lines: not the file that %s was built from", s.display(fr.File), len(f.lines), filepath.Base(fr.Module))
	}
	for n := max(1, fr.Line-linesBefore); n <= min(len(f.lines), fr.Line+linesAfter); n++ {
		text, caret := layOut(f.lines[n-1], 0)
		if n == fr.Line && fr.Column > 0 {
			text, caret = layOut(f.lines[n-1], fr.Column)
		}
		lines = append(lines, excerptLine{number: n, text: text, caret: caret, here: n == fr.Line})
	}
	return lines, ""
}

type excerptLine struct {
	number int
	text   string
	caret  int // 1-based column of the caret in text, 0: none
	here   bool
}

// layOut expands tabs, makes control characters harmless and cuts long lines. column counts bytes from 1, as compilers do; caret is
// where that byte lies in the text.
func layOut(line string, column int) (text string, caret int) {
	var b strings.Builder
	width := 0
	for i, c := range line {
		if i+1 <= column && width < maxColumns {
			caret = width + 1
		}
		if width >= maxColumns {
			b.WriteString("…")
			break
		}
		switch {
		case c == '\t':
			n := 8 - width%8
			b.WriteString(strings.Repeat(" ", n))
			width += n
		case isControl(c):
			b.WriteByte('?')
			width++
		default:
			b.WriteRune(c)
			width++
		}
	}
	if column > len(line) {
		caret = 0
	}
	return strings.TrimRight(b.String(), " "), caret
}

// isControl says that c could move the cursor or reorder the text of a terminal, or may not stand in XML.
func isControl(c rune) bool {
	return c < 0x20 || c >= 0x7f && c < 0xa0 || c >= 0x200e && c <= 0x200f || c >= 0x202a && c <= 0x202e || c >= 0x2066 && c <= 0x2069 || c == 0xfffe || c == 0xffff
}

// clean makes a name that came out of the target or its files fit for one line on a terminal.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if strings.IndexFunc(s, isControl) < 0 {
		return s
	}
	return strings.Map(func(c rune) rune {
		if isControl(c) {
			return '?'
		}
		return c
	}, s)
}

func (s *sources) read(path string) sourceFile {
	if f, ok := s.files[path]; ok {
		return f
	}
	f := readSource(path)
	if len(s.files) >= maxSourceFiles {
		clear(s.files)
	}
	s.files[path] = f
	return f
}

// readSource reads regular files only: opening a FIFO or a device that some debug information names could block or do harm.
func readSource(path string) (f sourceFile) {
	info, err := os.Stat(path)
	if err != nil {
		f.err = err
		return f
	}
	if !info.Mode().IsRegular() || info.Size() > maxSourceBytes {
		f.err = fmt.Errorf("%s: not a source file", path)
		return f
	}
	f.mtime = info.ModTime()
	file, err := os.Open(path)
	if err != nil {
		f.err = err
		return f
	}
	defer file.Close()
	sc := bufio.NewScanner(io.LimitReader(file, maxSourceBytes))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		f.lines = append(f.lines, sc.Text())
	}
	f.err = sc.Err()
	return f
}

// built is when module was last written, zero if that cannot be told.
func (s *sources) built(module string) time.Time {
	if module == "" {
		return time.Time{}
	}
	t, ok := s.mtimes[module]
	if !ok {
		if info, err := os.Stat(module); err == nil {
			t = info.ModTime()
		}
		s.mtimes[module] = t
	}
	return t
}
