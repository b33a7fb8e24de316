package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/unwind"
	"github.com/ripstop/ripstop/internal/wire"
)

// diskCache keeps unwind tables in the user's cache directory, a file for each module.id. It is shared by all sessions of the user at
// once: files are made elsewhere and renamed. Whatever goes wrong, the table is compiled instead.
type diskCache struct {
	dir string // "": there is none
}

const (
	// tableVersion is raised when package unwind makes other tables of the same input.
	tableVersion = 1
	cacheBytes   = 256 << 20 // when there is more, the least recently used files go,
	cacheKeep    = 192 << 20 // until this is left
	tableMagic   = 0x32544e57554c5052
)

func openDiskCache() *diskCache {
	base, err := os.UserCacheDir()
	if err != nil {
		return &diskCache{}
	}
	// Under sudo the directory may be another user's, who could put in it what he likes, and whom files of ours in it would trouble.
	if !ours(base) && !(errors.Is(unix.Access(base, unix.F_OK), unix.ENOENT) && ours(filepath.Dir(base))) {
		return &diskCache{}
	}
	dir := filepath.Join(base, "ripstop", fmt.Sprintf("unwind-%d.%d", wire.Version, tableVersion))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &diskCache{}
	}
	if !ours(dir) {
		return &diskCache{}
	}
	return &diskCache{dir}
}

// ours tells whether the directory belongs to this user and nobody else may write to it.
func ours(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}

// Files are: magic, CRC-32 of the table, its length, the table.
const cacheHeader = 8 + 8 + 8

func (c *diskCache) load(id string) ([]byte, bool) {
	if c.dir == "" || id == "" {
		return nil, false
	}
	path := filepath.Join(c.dir, id)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, false
	}
	ok := len(b) >= cacheHeader && binary.LittleEndian.Uint64(b) == tableMagic &&
		binary.LittleEndian.Uint64(b[16:]) == uint64(len(b)-cacheHeader) &&
		binary.LittleEndian.Uint64(b[8:]) == uint64(crc32.ChecksumIEEE(b[cacheHeader:]))
	if !ok || unwind.Check(b[cacheHeader:]) != nil {
		os.Remove(path)
		return nil, false
	}
	now := time.Now()
	os.Chtimes(path, now, now)
	return b[cacheHeader:], true
}

func (c *diskCache) store(id string, table []byte) {
	if c.dir == "" || id == "" {
		return
	}
	f, err := os.CreateTemp(c.dir, "new-*")
	if err != nil {
		return
	}
	var h [cacheHeader]byte
	binary.LittleEndian.PutUint64(h[:], tableMagic)
	binary.LittleEndian.PutUint64(h[8:], uint64(crc32.ChecksumIEEE(table)))
	binary.LittleEndian.PutUint64(h[16:], uint64(len(table)))
	_, err = f.Write(h[:])
	if err == nil {
		_, err = f.Write(table)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(c.dir, id))
	}
	if err != nil {
		os.Remove(f.Name())
		return
	}
	c.shrink(cacheBytes, cacheKeep)
}

// shrink removes the least recently used files when there are more than limit bytes, until keep are left. What a killed session left
// half-made goes the same way.
func (c *diskCache) shrink(limit, keep int64) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	var files []os.FileInfo
	var sum int64
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() {
			files = append(files, fi)
			sum += fi.Size()
		}
	}
	if sum <= limit {
		return
	}
	sort.Slice(files, func(i, j int) bool { return files[i].ModTime().Before(files[j].ModTime()) })
	for _, fi := range files {
		if sum <= keep {
			return
		}
		if os.Remove(filepath.Join(c.dir, fi.Name())) == nil {
			sum -= fi.Size()
		}
	}
}
