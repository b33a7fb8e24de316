package keys

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// wanted are the kernel's modules by which the machine has the host's files; those that another kernel has built in are not there.
var wanted = []string{
	"virtio", "virtio_ring", "virtio_pci", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "netfs", "fscache", "9pnet", "9pnet_virtio", "9p", "overlay",
}

// kernel gives Debian's kernel and its modules, which is downloaded once and not installed: none of the machine that the tests run on is changed by it.
func kernel(t *testing.T) (image string, modules map[string]string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	cache = filepath.Join(cache, "ripstop-test")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("../../script/kernel", cache).Output()
	if err != nil {
		t.Fatalf("script/kernel: %v\n%s", err, failure(err))
	}
	root := strings.TrimSpace(string(out))
	images, err := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*"))
	if err != nil || len(images) != 1 {
		t.Fatal(root, images, err)
	}
	modules = map[string]string{}
	err = filepath.WalkDir(filepath.Join(root, "lib/modules"), func(path string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			modules[name] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return images[0], modules
}

func failure(err error) []byte {
	if e, ok := err.(*exec.ExitError); ok {
		return e.Stderr
	}
	return nil
}

// archive is a cpio archive (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	bytes.Buffer
	files int
}

func (a *archive) add(name string, mode uint32, content []byte) {
	a.files++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.files, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	a.WriteString(name + "\x00")
	a.Write(make([]byte, -a.Len()&3))
	a.Write(content)
	a.Write(make([]byte, -a.Len()&3))
}

func initramfs(t *testing.T, modules map[string]string) string {
	t.Helper()
	first := filepath.Join(t.TempDir(), "init")
	cmd := exec.Command("go", "build", "-o", first, "./testdata/init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const directory, file = 0o40755, 0o100755
	var a archive
	for _, d := range []string{"m", "dev", "proc", "lower", "upper", "new"} {
		a.add(d, directory, nil)
	}
	add := func(name, path string) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		a.add(name, file, content)
	}
	add("init", first)
	for _, name := range wanted {
		if path := modules[name]; path != "" {
			add("m/"+name+".ko", path)
		}
	}
	a.add("TRAILER!!!", 0, nil)
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if _, err := z.Write(a.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "initramfs")
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// inMachine runs a command in a machine of two processors with protection keys, which QEMU emulates, on the host's files as they are now; what it changes is gone with it. Gives its output and exit status.
func inMachine(t *testing.T, script string, limit time.Duration) (output string, status int) {
	t.Helper()
	image, modules := kernel(t)
	run := filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(run, []byte("#!/bin/bash\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	// Without SMAP: QEMU 7.2 takes the stack of a user's iret, which trampolines return by, for memory that the kernel may not read.
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,-smap,-smep", "-smp", "2", "-m", "4G", "-nodefaults", "-nographic", "-serial", "stdio", "-no-reboot",
		"-kernel", image, "-initrd", initramfs(t, modules), "-append", "console=ttyS0 quiet panic=1 mitigations=off run="+run,
		"-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap", "-device", "virtio-9p-pci,fsdev=host,mount_tag=host")
	out, err := cmd.CombinedOutput()
	output = strings.ReplaceAll(string(out), "\r", "")
	at := strings.LastIndex(output, "\nended: ")
	if at < 0 {
		t.Fatalf("the machine did not end as it should: %v (%v)\n%s", err, ctx.Err(), output)
	}
	status, err = strconv.Atoi(strings.TrimSpace(strings.SplitN(output[at+len("\nended: "):], "\n", 2)[0]))
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return output[:at], status
}
