package agent

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/image"
)

// Exit codes of a launch that failed, as of env(1), timeout(1) and the shell.
const (
	ExitOurs          = 125 // ripstop could not do its part
	ExitNotExecutable = 126 // there is a program, but it cannot be run (or not be watched)
	ExitNotFound      = 127
)

// Refusal says why a program is not started. Its text is one line for the user.
type Refusal struct {
	Code int
	Text string
}

func (r *Refusal) Error() string { return r.Text }

func refuse(code int, format string, args ...any) error {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}

// Program is what is to be started.
type Program struct {
	Path string   // of the file to execute: the program's own, or the script's
	Args []string // argv, the first one included, as the user gave it
	Exec string   // the ELF file that the kernel will run: of a script, its last interpreter; "" if that cannot be told
	// Shell: the file has no #! and is no ELF file. The kernel may know it (binfmt_misc); otherwise it is /bin/sh's, as with execvp.
	Shell bool
}

// Resolve finds the program as execvp would, follows its #! lines as the kernel does, and refuses what cannot be run under the agent. With an
// Instrumented the program is there, too.
func Resolve(args []string, env []string) (*Program, error) {
	if len(args) == 0 || args[0] == "" {
		return nil, refuse(ExitNotFound, "no program was given")
	}
	path, err := lookup(args[0], env)
	if err != nil {
		return nil, err
	}
	p := &Program{Path: path, Args: args}
	return p, p.check(env)
}

// defaultPath is where execvp looks when PATH is not set.
const defaultPath = "/bin:/usr/bin"

func lookup(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", launchError(name, err)
		}
		return name, nil
	}
	path := defaultPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
			break
		}
	}
	var denied error
	for _, dir := range strings.Split(path, ":") {
		file := filepath.Join(dir, name)
		if dir == "" {
			file = "./" + name
		}
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if errors.Is(err, fs.ErrPermission) && denied == nil {
			denied = launchError(file, err)
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", refuse(ExitNotFound, "%s: no such program in PATH", name)
}

var errDirectory = errors.New("is a directory")

// executable fails unless the file is a regular one that we may execute.
func executable(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	switch {
	case fi.IsDir():
		return errDirectory
	case !fi.Mode().IsRegular():
		return fs.ErrPermission
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return err
	}
	return nil
}

func launchError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return refuse(ExitNotFound, "%s: no such file", path)
	case errors.Is(err, errDirectory):
		return refuse(ExitNotExecutable, "%s: is a directory", path)
	case errors.Is(err, fs.ErrPermission):
		return refuse(ExitNotExecutable, "%s: permission denied: it is not executable by this user", path)
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return refuse(ExitNotExecutable, "%s: %v", path, err)
}

// maxInterpreters is how many #! lines the kernel follows.
const maxInterpreters = 5

// check follows the chain of interpreters and looks at the ELF file at its end.
func (p *Program) check(env []string) error {
	file := p.Path
	for depth := 0; ; depth++ {
		head, err := readHead(file)
		if err != nil {
			if errors.Is(err, fs.ErrPermission) {
				// It may be executable without being readable. ld.so then still loads the agent.
				p.Exec = file
				return nil
			}
			return launchError(file, err)
		}
		if bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
			p.Exec = file
			return checkELF(p.Path, file, env)
		}
		interp, ok := shebang(head)
		if !ok {
			if bytes.HasPrefix(head, []byte("#!")) {
				return refuse(ExitNotExecutable, "%s: its #! line names no interpreter", file)
			}
			if line, _, _ := bytes.Cut(head, []byte("\n")); bytes.IndexByte(line, 0) >= 0 && !binfmtMisc() {
				return refuse(ExitNotExecutable, "%s: neither a program of this machine nor a script", file)
			}
			if depth > 0 {
				return refuse(ExitNotExecutable, "%s: its interpreter %s is neither a program of this machine nor a script with #!", p.Path, file)
			}
			p.Shell = true
			return nil
		}
		if depth == maxInterpreters {
			return refuse(ExitNotExecutable, "%s: its interpreters are scripts themselves, too many levels deep", p.Path)
		}
		if err := executable(interp); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return refuse(ExitNotFound, "%s: its interpreter %s does not exist", file, interp)
			}
			return launchError(interp, err)
		}
		file = interp
	}
}

// headBytes is how much of a file the kernel looks at for a #! line.
const headBytes = 256

func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, headBytes)
	n, err := io.ReadFull(f, b)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	return b[:n], nil
}

// shebang is the interpreter that a #! line names.
func shebang(head []byte) (string, bool) {
	rest, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return "", false
	}
	line, _, whole := bytes.Cut(rest, []byte("\n"))
	line = bytes.TrimLeft(line, " \t")
	end := bytes.IndexAny(line, " \t\x00")
	if end < 0 {
		// The kernel refuses a name that may have been cut off.
		if !whole && len(head) == headBytes {
			return "", false
		}
		end = len(line)
	}
	return string(line[:end]), end > 0
}

// binfmtMisc tells whether the kernel may know other formats than ELF and #!.
func binfmtMisc() bool {
	entries, err := os.ReadDir("/proc/sys/fs/binfmt_misc")
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.Name() != "register" && e.Name() != "status" {
			return true
		}
	}
	return false
}

// checkELF refuses an ELF file that cannot load the agent. name is what the user asked for: the file, or a script run by it.
func checkELF(name, file string, env []string) error {
	what := name
	if file != name {
		what = fmt.Sprintf("%s (run by %s)", name, file)
	}
	k, err := image.Classify(file)
	if err != nil {
		if errors.Is(err, image.ErrDamaged) || errors.Is(err, image.ErrNotELF) {
			return refuse(ExitNotExecutable, "%s: a %s", what, strings.TrimPrefix(err.Error(), file+": "))
		}
		return launchError(file, err)
	}
	switch {
	case k.Machine != elf.EM_X86_64 && k.Class == elf.ELFCLASS32:
		return refuse(ExitNotExecutable, "%s: a 32-bit program (%s); ripstop watches 64-bit x86-64 programs", what, machine(k.Machine))
	case k.Machine != elf.EM_X86_64:
		return refuse(ExitNotExecutable, "%s: a program for another machine (%s); ripstop watches x86-64 programs", what, machine(k.Machine))
	case k.Class != elf.ELFCLASS64:
		return refuse(ExitNotExecutable, "%s: an x32 program; ripstop watches 64-bit x86-64 programs", what)
	case k.Type != elf.ET_EXEC && k.Type != elf.ET_DYN:
		return refuse(ExitNotExecutable, "%s: not a program but %s", what, map[elf.Type]string{elf.ET_REL: "an object file", elf.ET_CORE: "a core dump"}[k.Type])
	case k.Truncated:
		return refuse(ExitNotExecutable, "%s: a truncated ELF file: a segment lies beyond its end", what)
	case k.Static():
		return refuse(ExitNotExecutable, "%s: statically linked; the agent can be loaded into dynamically linked programs only", what)
	case k.Libc == image.LibcMusl:
		return refuse(ExitNotExecutable, "%s: linked with musl (%s); ripstop watches programs of glibc", what, k.Interp)
	case k.Libc != image.LibcGlibc:
		return refuse(ExitNotExecutable, "%s: its dynamic linker %s is not glibc's; ripstop watches programs of glibc", what, k.Interp)
	}
	if _, err := os.Stat(k.Interp); errors.Is(err, fs.ErrNotExist) {
		return refuse(ExitNotFound, "%s: its dynamic linker %s does not exist", what, k.Interp)
	}
	if err := checkPrivileges(what, file); err != nil {
		return err
	}
	return checkSanitizer(what, file, env)
}

func machine(m elf.Machine) string { return strings.ToLower(strings.TrimPrefix(m.String(), "EM_")) }

// checkPrivileges refuses a file that gives its process more than we have: ld.so ignores LD_PRELOAD then.
func checkPrivileges(what, file string) error {
	if nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && nnp == 1 {
		return nil // nothing is given
	}
	var fs unix.Statfs_t
	if unix.Statfs(file, &fs) == nil && fs.Flags&unix.ST_NOSUID != 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return launchError(file, err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	why := ""
	switch {
	case st.Mode&unix.S_ISUID != 0 && int(st.Uid) != uid:
		why = "setuid"
	case st.Mode&(unix.S_ISGID|unix.S_IXGRP) == unix.S_ISGID|unix.S_IXGRP && int(st.Gid) != gid:
		why = "setgid"
	case uid != 0:
		if n, err := unix.Getxattr(file, "security.capability", nil); err == nil && n > 0 {
			why = "given capabilities (setcap)"
		}
	}
	if why == "" {
		return nil
	}
	return refuse(ExitNotExecutable, "%s: it is %s, so that ld.so does not load the agent; run ripstop as the user whose rights it gets, or a copy without them", what, why)
}
