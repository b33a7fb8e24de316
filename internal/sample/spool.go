package sample

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"unsafe"
)

// A spool keeps what samples there are more of than fit: they go to temporary files without a name, each thread's together in the end, and are mapped from there. So
// they are the kernel's to drop from memory. A Sample has no pointer, so its bytes can lie in a file.
type spool struct {
	held   int      // samples in memory
	file   *os.File // pieces of threads' samples, in the order in which they were put away; nil: there are none
	size   int64
	pieces map[*Thread][]part
}

// maxHeld is how many samples of all threads are kept in memory (12 MB), and maxStacks how many bytes of their stacks. Tests change them.
var (
	maxHeld   = 1 << 16
	maxStacks = 4 << 20
)

const sampleBytes = int64(unsafe.Sizeof(Sample{}))

// A tail is bytes that are only added to: the last of them in memory.
type tail struct {
	file *os.File
	put  int64 // bytes in the file
	rest []byte
}

func tempFile() (*os.File, error) {
	f, err := os.CreateTemp("", "ripstop-samples-*")
	if err != nil {
		return nil, fmt.Errorf("samples are kept in a temporary file: %w; TMPDIR chooses another directory", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// add takes bytes and says where they are.
func (t *tail) add(b []byte) (at int64, err error) {
	if len(t.rest)+len(b) > maxStacks && len(t.rest) > 0 {
		if t.file == nil {
			if t.file, err = tempFile(); err != nil {
				return 0, err
			}
		}
		if _, err := t.file.WriteAt(t.rest, t.put); err != nil {
			return 0, fmt.Errorf("samples are kept in a temporary file: %w; TMPDIR chooses another directory", err)
		}
		t.put += int64(len(t.rest))
		t.rest = t.rest[:0]
	}
	at = t.put + int64(len(t.rest))
	t.rest = append(t.rest, b...)
	return at, nil
}

func (t *tail) read(at int64, n int) ([]byte, error) {
	b := make([]byte, n)
	if at >= t.put {
		copy(b, t.rest[at-t.put:])
		return b, nil
	}
	_, err := t.file.ReadAt(b, at)
	return b, err
}

// add takes a sample of a thread.
func (p *spool) add(threads []*Thread, t *Thread, s *Sample) error {
	t.Samples = append(t.Samples, *s)
	if p.held++; p.held < maxHeld {
		return nil
	}
	return p.putAway(threads)
}

// bytesOf are the bytes of samples.
func bytesOf(s []Sample) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), int64(len(s))*sampleBytes)
}

// putAway writes all samples in memory to the file.
func (p *spool) putAway(threads []*Thread) (err error) {
	if p.file == nil {
		if p.file, err = tempFile(); err != nil {
			return err
		}
		p.pieces = map[*Thread][]part{}
	}
	for _, t := range threads {
		if len(t.Samples) == 0 {
			continue
		}
		b := bytesOf(t.Samples)
		if _, err := p.file.WriteAt(b, p.size); err != nil {
			return fmt.Errorf("samples are kept in a temporary file: %w; TMPDIR chooses another directory", err)
		}
		p.pieces[t] = append(p.pieces[t], part{p.size, int64(len(b))})
		p.size += int64(len(b))
		t.Samples = nil
	}
	p.held = 0
	return nil
}

// finish puts each thread's samples in the order of time, where they are to stay; the mapping is nil if that is in memory.
func (p *spool) finish(threads []*Thread) (mapping []byte, err error) {
	defer func() {
		if p.file != nil {
			_ = p.file.Close()
			p.file, p.pieces = nil, nil
		}
	}()
	if p.file != nil {
		if err := p.putAway(threads); err != nil {
			return nil, err
		}
		if mapping, err = p.gather(threads); err != nil {
			return nil, err
		}
	}
	byTime := func(a, b Sample) int { return cmp.Compare(a.TSC, b.TSC) }
	for _, t := range threads {
		if !slices.IsSortedFunc(t.Samples, byTime) {
			slices.SortStableFunc(t.Samples, byTime)
		}
	}
	return mapping, nil
}

// gather maps a file in which each thread's samples are one piece.
func (p *spool) gather(threads []*Thread) ([]byte, error) {
	f, err := tempFile()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, t := range threads {
		for _, x := range p.pieces[t] {
			if n, err := io.Copy(f, io.NewSectionReader(p.file, x.offset, x.size)); err != nil {
				return nil, fmt.Errorf("samples are kept in a temporary file: %w; TMPDIR chooses another directory", err)
			} else if n != x.size {
				return nil, io.ErrUnexpectedEOF
			}
		}
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(p.size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of samples: %w", p.size, err)
	}
	at := int64(0)
	for _, t := range threads {
		n := int64(0)
		for _, x := range p.pieces[t] {
			n += x.size
		}
		if n > 0 {
			t.Samples = unsafe.Slice((*Sample)(unsafe.Pointer(&b[at])), n/sampleBytes)
		}
		at += n
	}
	return b, nil
}

// Stack gives the memory from rsp on that a sample of a clock came with; nil if none did.
func (r *Recording) Stack(s *Sample) ([]byte, error) {
	if s.stackLen == 0 {
		return nil, nil
	}
	return r.stacks.read(s.stackAt, int(s.stackLen))
}
