package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/wire"
)

// diskCache keeps unwind tables in the user's cache directory, a file for each module.id. It is shared by all sessions of the user at
// once: files are made elsewhere and renamed. Whatever goes wrong, the table is compiled instead.
type diskCache struct {
	dir string // "": there is none
}

const (
	// tableVersion is raised when package unwind makes other tables of the same input, or the files are made otherwise.
	tableVersion = 3
	cacheBytes   = 256 << 20 // when there is more, the least recently used files go,
	cacheKeep    = 192 << 20 // until this is left
	tableMagic   = 0x32544e57554c5052
	maxTable     = 1 << 30
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

// A file is the table, and behind it CRC-32 of the table, its length, magic: so a process can map the table in the file itself.
const cacheTrailer = 8 + 8 + 8

// keepsMappings are the file systems (statfs(2)) on which a file that was unlinked stays readable for who has it mapped. Elsewhere, as by NFS, it may not,
// and whoever reads it then dies of SIGBUS.
var keepsMappings = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true,
}

// usedEvery is how exactly it is known when a file was used last.
const usedEvery = 12 * time.Hour

// cacheBuffers are what files are read by.
var cacheBuffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// load returns a descriptor, the caller's, of a file that begins with the table of id, and the table's bytes; false: there is none. The table was checked
// to be what store was given. Processes may map it: what has its name in the cache is unlinked or replaced as a whole, but never written to or shortened.
func (c *diskCache) load(id string) (fd int, size int64, ok bool) {
	if c.dir == "" || id == "" {
		return -1, 0, false
	}
	path := filepath.Join(c.dir, id)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, 0, false
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return -1, 0, false
	}
	var fs unix.Statfs_t
	var whole []byte // of what is to be copied
	direct := unix.Fstatfs(fd, &fs) == nil && keepsMappings[int64(fs.Type)]
	size = st.Size - cacheTrailer
	if !direct && size > 0 && size <= maxTable {
		whole = make([]byte, size)
	}
	if !intact(fd, size, whole) {
		unix.Close(fd)
		os.Remove(path)
		return -1, 0, false
	}
	if time.Since(time.Unix(st.Mtim.Unix())) > usedEvery {
		now := time.Now()
		os.Chtimes(path, now, now)
	}
	if direct {
		return fd, size, true
	}
	unix.Close(fd)
	fd, err = sealed(whole)
	return fd, size, err == nil
}

// intact tells whether the file is a table of size bytes and its trailer. It reads the table into whole, unless that is nil.
func intact(fd int, size int64, whole []byte) bool {
	if size < 0 || size > maxTable {
		return false
	}
	room := cacheBuffers.Get().(*[]byte)
	defer cacheBuffers.Put(room)
	var sum uint32
	for at := int64(0); at < size; {
		piece := (*room)[:min(int64(len(*room)), size-at)]
		if whole != nil {
			piece = whole[at:]
		}
		n, err := unix.Pread(fd, piece, at)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return false
		}
		sum = crc32.Update(sum, crc32.IEEETable, piece[:n])
		at += int64(n)
	}
	var t [cacheTrailer]byte
	n, err := unix.Pread(fd, t[:], size)
	return err == nil && n == len(t) && t == trailer(sum, size)
}

func trailer(sum uint32, size int64) (t [cacheTrailer]byte) {
	binary.LittleEndian.PutUint64(t[:], uint64(sum))
	binary.LittleEndian.PutUint64(t[8:], uint64(size))
	binary.LittleEndian.PutUint64(t[16:], tableMagic)
	return t
}

func (c *diskCache) store(id string, table []byte) {
	if c.dir == "" || id == "" || len(table) > maxTable {
		return
	}
	f, err := os.CreateTemp(c.dir, "new-*")
	if err != nil {
		return
	}
	t := trailer(crc32.ChecksumIEEE(table), int64(len(table)))
	_, err = f.Write(table)
	if err == nil {
		_, err = f.Write(t[:])
	}
	_ = f.Chmod(0o400) // processes will have it mapped: the user's own tools should not write over it either
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
