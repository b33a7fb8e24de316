package doctor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loaderPath is where every x86-64 program for glibc names its loader.
const loaderPath = "/lib64/ld-linux-x86-64.so.2"

// patience bounds every process that a probe starts.
const patience = 10 * time.Second

var glibcVersion = regexp.MustCompile(`(?m)(?:GLIBC|GNU libc|version) [^\n]*?(\d+\.\d+)`)

func (s *system) glibc() Answer {
	if _, err := os.Stat(loaderPath); err != nil {
		return no("no " + loaderPath + ": ripstop watches programs of the GNU C library for x86-64 only")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, loaderPath, "--version").CombinedOutput()
	if err != nil {
		// Loaders before 2.33 know no --version; the library itself can be run instead.
		out, err = exec.CommandContext(ctx, "/lib/x86_64-linux-gnu/libc.so.6").CombinedOutput()
	}
	if err != nil {
		return unknown(loaderPath + " --version: " + err.Error())
	}
	m := glibcVersion.FindSubmatch(out)
	if m == nil {
		return unknown("cannot find a version in: " + firstLine(out))
	}
	version := string(m[1])
	if major, minor, ok := parseVersion(version); ok && (major < 2 || major == 2 && minor < 31) {
		return no("too old: " + version + ", ripstop needs 2.31").with(version)
	}
	return yes(version)
}

func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte("\n"))
	return string(line)
}

// victim starts a process that waits until stop is called.
func (s *system) victim() (pid int, stop func(), err error) {
	path, err := s.lookPath("cat")
	if err != nil {
		return 0, nil, fmt.Errorf("no program to try it on: %w", err)
	}
	cmd := exec.Command(path)
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	return cmd.Process.Pid, func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}, nil
}

func (s *system) ptrace() Answer {
	pid, stop, err := s.victim()
	if err != nil {
		return unknown(err.Error())
	}
	defer stop()
	if _, e := s.call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0); e != 0 {
		if a := s.yama(); a.Status == No {
			return no("ptrace: " + e.Error() + " (" + a.Value + ")")
		}
		return s.refused("ptrace", e)
	}
	if _, e := s.call(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, uintptr(pid), 0, 0); e != 0 {
		return s.refused("ptrace(PTRACE_INTERRUPT)", e)
	}
	var ws unix.WaitStatus
	for deadline := time.Now().Add(patience); ; {
		got, err := unix.Wait4(pid, &ws, unix.WALL|unix.WNOHANG, nil)
		if err != nil && err != unix.EINTR {
			return unknown("wait: " + err.Error())
		}
		if got == pid {
			break
		}
		if time.Now().After(deadline) {
			return unknown("the child did not stop")
		}
		time.Sleep(time.Millisecond)
	}
	if !ws.Stopped() {
		return unknown("the child ended before it could be stopped")
	}
	var regs unix.PtraceRegs
	if _, e := s.call(unix.SYS_PTRACE, unix.PTRACE_GETREGS, uintptr(pid), 0, addressOf(&regs)); e != 0 {
		return s.refused("ptrace(PTRACE_GETREGS)", e)
	}
	s.call(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, 0)
	return yes("")
}

func (s *system) vmRead() Answer {
	pid, stop, err := s.victim()
	if err != nil {
		return unknown(err.Error())
	}
	defer stop()
	maps, err := s.readFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return notThere(err)
	}
	var addr uint64
	if _, err := fmt.Sscanf(string(maps), "%x-", &addr); err != nil {
		return unknown(fmt.Sprintf("/proc/%d/maps: %v", pid, err))
	}
	var word uint64
	local := &unix.Iovec{Base: (*byte)(unsafe.Pointer(&word)), Len: 8}
	remote := &unix.RemoteIovec{Base: uintptr(addr), Len: 8}
	if _, e := s.call(unix.SYS_PROCESS_VM_READV, uintptr(pid), addressOf(local), 1, addressOf(remote), 1, 0); e != 0 {
		return s.refused("process_vm_readv", e)
	}
	return yes("")
}

// agent loads the agent into a program that does nothing.
func (s *system) agent() Answer {
	data, err := s.opts.Agent()
	if err != nil {
		return no(err.Error())
	}
	dir := s.execDir()
	if dir.Status != Yes {
		return unknown("no directory to load it from")
	}
	path, err := s.lookPath("true")
	if err != nil {
		return unknown("no program to try it on: " + err.Error())
	}
	tmp, err := os.MkdirTemp(dir.Value, "ripstop-doctor-*")
	if err != nil {
		return unknown(err.Error())
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "libripstop.so")
	if err := os.WriteFile(file, data, 0o755); err != nil {
		return unknown(err.Error())
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(withoutPreload(os.Environ()), "LD_PRELOAD="+file, "LD_BIND_NOW=1")
	out, err := cmd.CombinedOutput()
	switch {
	case len(bytes.TrimSpace(out)) > 0:
		return no(strings.ReplaceAll(firstLine(out), tmp+"/", ""))
	case err != nil:
		return no(filepath.Base(path) + " with the agent: " + err.Error())
	}
	return yes(fmt.Sprintf("%d KiB", len(data)/1024))
}

func withoutPreload(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "LD_PRELOAD=") {
			out = append(out, kv)
		}
	}
	return out
}
