// Package cache keeps what is costly to make and can be made again in files of the user's, shared by all sessions at once. What comes back is what was stored: each file
// carries a keyed hash, whose key nobody but the user can read. Whatever goes wrong, nothing is there.
package cache

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/present"
)

// A Dir is a directory of files, each by its id. The zero value, and nil, have nothing and keep nothing. It is for several goroutines at once.
type Dir struct {
	dir  string
	key  []byte
	most int64

	mu     sync.Mutex
	room   int64             // how many bytes may be stored yet before the directory is listed again, to know how much is there
	listed int               // how often that was done
	held   map[string][]byte // what was loaded, as far as it is small: a session loads the same for each of its processes
	bytes  int               // of that
}

const (
	keyName = "key"
	keySize = 32
	// usedEvery is how exactly it is known when a file was used last.
	usedEvery = time.Hour
	// heldMost is how many bytes are held in memory, heldLong of how many one file.
	heldMost, heldLong = 32 << 20, 4 << 20
)

// Open opens the directory of that name below the user's cache directory, and makes it if need be. When it has more than most bytes the least recently used files go, until a quarter
// of it is free.
func Open(name string, most int64) *Dir {
	base, err := os.UserCacheDir()
	if err != nil {
		return &Dir{}
	}
	// Under sudo the directory may be another user's.
	if !ours(base) && !(errors.Is(unix.Access(base, unix.F_OK), unix.ENOENT) && ours(filepath.Dir(base))) {
		return &Dir{}
	}
	return openAt(filepath.Join(base, "ripstop", name), most)
}

func openAt(dir string, most int64) *Dir {
	if err := os.MkdirAll(dir, 0o700); err != nil || !ours(dir) {
		return &Dir{}
	}
	key, err := readKey(filepath.Join(dir, keyName))
	if err != nil {
		return &Dir{}
	}
	return &Dir{dir: dir, key: key, most: most}
}

// ours tells whether a directory belongs to this user and nobody else may write to it.
func ours(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}

var errKey = errors.New("the key is not this user's alone")

// readKey reads the key, and makes one if there is none. Of two that do so at once one wins.
func readKey(path string) ([]byte, error) {
	for range 2 {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) {
			if err := makeKey(path); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return nil, err
		}
		key := make([]byte, keySize)
		if int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 || st.Size != keySize {
			return nil, errKey
		}
		if n, err := f.ReadAt(key, 0); n != keySize {
			return nil, err
		}
		return key, nil
	}
	return nil, errKey
}

func makeKey(path string) error {
	key := make([]byte, keySize)
	if n, err := unix.Getrandom(key, 0); n != keySize {
		return errors.Join(errKey, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(key)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Link(f.Name(), path) // fails if it is there
}

// sum is the hash that a file ends with: over its id too, so that no file passes for another one.
func (d *Dir) sum(id string, body ...[]byte) []byte {
	h := hmac.New(sha256.New, d.key)
	h.Write([]byte(id))
	h.Write([]byte{0})
	for _, b := range body {
		h.Write(b)
	}
	return h.Sum(nil)
}

// read reads a file.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() > math.MaxInt32 {
		return nil, cmp.Or(err, os.ErrInvalid)
	}
	b := present.Bytes(int(st.Size()))
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // it is empty, or was cut: its hash will say so
	}
	return b[:n], err
}

// Load gives what Store was given under the id, which is a file name; false: there is nothing. What it gave once it may give again, whatever became of the file. It is the caller's.
func (d *Dir) Load(id string) ([]byte, bool) {
	if d == nil || d.dir == "" {
		return nil, false
	}
	if b, ok := d.again(id); ok {
		return b, true
	}
	path := filepath.Join(d.dir, id)
	b, err := read(path)
	if err != nil {
		return nil, false
	}
	n := len(b) - sha256.Size
	if n < 0 || !hmac.Equal(d.sum(id, b[:n]), b[n:]) {
		os.Remove(path)
		return nil, false
	}
	if st, err := os.Stat(path); err == nil && time.Since(st.ModTime()) > usedEvery {
		now := time.Now()
		os.Chtimes(path, now, now)
	}
	d.hold(id, b[:n])
	return b[:n:n], true
}

func (d *Dir) again(id string) ([]byte, bool) {
	d.mu.Lock()
	b, ok := d.held[id]
	d.mu.Unlock()
	return slices.Clone(b), ok
}

func (d *Dir) hold(id string, b []byte) {
	if len(b) > heldLong {
		return
	}
	b = slices.Clone(b)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bytes += len(b) - len(d.held[id]); d.held == nil || d.bytes > heldMost {
		d.held, d.bytes = map[string][]byte{}, len(b)
	}
	d.held[id] = b
}

func (d *Dir) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes -= len(d.held[id])
	delete(d.held, id)
}

// Store keeps parts, one behind the other, under an id. What was there is replaced.
func (d *Dir) Store(id string, parts ...[]byte) {
	if d == nil || d.dir == "" {
		return
	}
	d.forget(id)
	size := int64(0)
	for _, b := range parts {
		size += int64(len(b))
	}
	if size > d.most/2 {
		return
	}
	f, err := os.CreateTemp(d.dir, "new-*")
	if err != nil {
		return
	}
	for _, b := range append(slices.Clone(parts), d.sum(id, parts...)) {
		if err == nil {
			_, err = f.Write(b)
		}
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(d.dir, id))
	}
	if err != nil {
		os.Remove(f.Name())
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.room -= size; d.room < 0 {
		d.room = max((d.most-d.shrink())/2, d.most/64)
	}
}

// shrink removes the least recently used files when there are too many bytes, and tells how many are left. What a killed session left half-made goes the same way. It takes as long as
// there are files, so it is not done for each that is stored: other sessions may store meanwhile, and so the directory may for a while have a little more than it should.
func (d *Dir) shrink() (sum int64) {
	d.listed++
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return d.most
	}
	var files []fs.FileInfo
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() && e.Name() != keyName {
			files = append(files, fi)
			sum += fi.Size()
		}
	}
	if sum <= d.most {
		return sum
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, fi := range files {
		if sum <= d.most/4*3 {
			break
		}
		if os.Remove(filepath.Join(d.dir, fi.Name())) == nil {
			sum -= fi.Size()
		}
	}
	return sum
}
