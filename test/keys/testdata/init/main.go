// The first process of the machine of test/keys: it makes the host's file system, under a layer in memory, its own, runs what the kernel's command line says (run=PATH), and ends the machine.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func must(what string, err error) {
	if err != nil {
		fmt.Printf("\n%s: %v\nended: -1\n", what, err)
		end()
	}
}

func end() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // QEMU ends at it (-no-reboot)
	select {}
}

func mount(source, target, kind string, flags uintptr, data string) {
	must("mkdir", os.MkdirAll(target, 0o755))
	must("mount "+target, unix.Mount(source, target, kind, flags, data))
}

// load loads all of /m: a module whose needs are not there yet is tried again.
func load() {
	left, _ := filepath.Glob("/m/*.ko")
	for {
		var failed []string
		var why error
		for _, name := range left {
			f, err := os.Open(name)
			must("open", err)
			if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
				failed, why = append(failed, name), err
			}
			_ = f.Close()
		}
		if len(failed) == 0 {
			return
		}
		if len(failed) == len(left) {
			must(strings.Join(failed, " "), why)
		}
		left = failed
	}
}

func lo() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

func main() {
	load()
	const p9 = "trans=virtio,version=9p2000.L,msize=262144,cache=loose"
	mount("host", "/lower", "9p", unix.MS_RDONLY, p9)
	mount("tmp", "/upper", "tmpfs", 0, "size=70%")
	must("mkdir", os.Mkdir("/upper/u", 0o755))
	must("mkdir", os.Mkdir("/upper/w", 0o755))
	mount("over", "/new", "overlay", 0, "lowerdir=/lower,upperdir=/upper/u,workdir=/upper/w")
	mount("proc", "/new/proc", "proc", 0, "")
	mount("sys", "/new/sys", "sysfs", 0, "")
	mount("dev", "/new/dev", "devtmpfs", 0, "")
	mount("pts", "/new/dev/pts", "devpts", 0, "")
	mount("shm", "/new/dev/shm", "tmpfs", 0, "")
	must("chdir", os.Chdir("/new"))
	must("move", unix.Mount(".", "/", "", unix.MS_MOVE, ""))
	must("chroot", unix.Chroot("."))
	must("chdir", os.Chdir("/"))
	must("lo", lo())

	line, err := os.ReadFile("/proc/cmdline")
	must("cmdline", err)
	var run string
	for _, word := range strings.Fields(string(line)) {
		if path, ok := strings.CutPrefix(word, "run="); ok {
			run = path
		}
	}
	cmd := exec.Command(run)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		must(run, err)
	}
	fmt.Printf("\nended: %d\n", cmd.ProcessState.ExitCode())
	end()
}
