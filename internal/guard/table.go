package guard

import (
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ripstop/ripstop/internal/syscalls"
)

// A FileSystem is one by its magic number (statfs(2)).
type FileSystem struct {
	Name  string
	Magic uint32
}

// FileSystems are those whose regular files hold what was written to them, so that a read can be made again. Of all others (procfs, sysfs, FUSE …) what was read is recorded.
var FileSystems = []FileSystem{
	{"ext2, ext3, ext4", unix.EXT4_SUPER_MAGIC}, {"xfs", unix.XFS_SUPER_MAGIC}, {"btrfs", unix.BTRFS_SUPER_MAGIC}, {"tmpfs", unix.TMPFS_MAGIC}, {"ramfs", unix.RAMFS_MAGIC},
	{"overlayfs", unix.OVERLAYFS_SUPER_MAGIC}, {"f2fs", unix.F2FS_SUPER_MAGIC}, {"squashfs", unix.SQUASHFS_MAGIC}, {"isofs", unix.ISOFS_SUPER_MAGIC}, {"zfs", 0x2fc12fc1},
}

// A group is of calls that are alike.
type group struct {
	class Class
	names string
	why   string
}

var groups = []group{
	{Repeatable, "getpid gettid getuid geteuid getgid getegid getresuid getresgid getgroups capget sched_get_priority_max sched_get_priority_min", "what it tells is changed by calls only that end the epoch"},
	{Repeatable, "mprotect munmap", "a rollback puts the map back; the recording's address is asked for again"},
	{Repeatable, "brk", "a rollback puts the end of the heap back"},
	{Repeatable, "mlock munlock mlock2 mlockall munlockall msync mbind set_mempolicy membarrier set_robust_list set_tid_address sched_setaffinity sched_setparam sched_setscheduler " +
		"sched_setattr setpriority ioprio_set", "doing it twice is doing it once"},
	{Repeatable, "sigaltstack rt_sigreturn", "the alternate stack goes back with the thread's frame"},
	{Recordable, "rt_sigprocmask rt_sigaction", "actions stay as the recording left them, and in a re-execution no signal comes: those of the program wait"},
	{Loose, "futex futex_waitv futex_wake futex_wait futex_requeue", "the order of what it is made for is recorded (guardlog.h); a wait may find that it need not"},
	{Loose, "sched_yield", "how often a loop yields until another thread has done something is chance (guardyield.h)"},

	{Recordable, "gettimeofday clock_gettime clock_getres time times getrusage sysinfo getcpu getrandom uname", "time, chance and what others change"},
	{Recordable, "nanosleep clock_nanosleep", "the time has passed already"},
	{Recordable, "pause rt_sigsuspend rt_sigtimedwait rt_sigpending restart_syscall", "the signal is an event of its own"},
	{Recordable, "getppid getpgid getsid getpgrp getcwd getrlimit prlimit64 setrlimit getpriority ioprio_get sched_getaffinity sched_getparam sched_getscheduler sched_getattr sched_rr_get_interval " +
		"get_robust_list umask", "others may change it; it stays as the recording set it"},
	{Recordable, "getitimer setitimer alarm timer_create timer_settime timer_gettime timer_getoverrun timer_delete timerfd_create timerfd_settime timerfd_gettime", "timers run on; their signals are events of their own"},
	{Recordable, "stat lstat fstat newfstatat statx access faccessat faccessat2 readlink readlinkat getdents getdents64 statfs fstatfs getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr get_mempolicy", "what others see and change"},
	{Recordable, "write pwrite64 writev pwritev pwritev2", "nothing is written twice: a hash of the data is compared. Over what was read in this epoch: that is kept, or the agent ends it first"},
	{Recordable, "open openat creat dup memfd_create pipe pipe2 eventfd eventfd2 epoll_create epoll_create1 signalfd signalfd4 inotify_init inotify_init1 pidfd_open pidfd_getfd mq_open",
		"the descriptor is there already; O_TRUNC of what was read in this epoch: the agent ends it first"},
	{Recordable, "lseek", "the offset stays where the recording left it: reads are made again at theirs"},
	{Recordable, "socket socketpair connect bind listen accept accept4 shutdown sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg getsockname getpeername getsockopt setsockopt",
		"the other side has seen it once; the socket stays as the recording left it"},
	{Recordable, "poll ppoll select pselect6 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 inotify_add_watch inotify_rm_watch", "what was ready then"},
	{Recordable, "sendfile splice tee vmsplice copy_file_range", "between descriptors; a file that was read in this epoch is not written to by it: the agent ends it first"},
	{Recordable, "fsync fdatasync sync syncfs sync_file_range fadvise64 readahead flock", "nothing is written in a re-execution"},
	{Recordable, "truncate ftruncate fallocate", "of a file that was read in this epoch the agent ends it first"},
	{Recordable, "unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir link linkat symlink symlinkat mknod mknodat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes " +
		"utimensat futimesat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr chdir fchdir", "names are looked up by recordable calls only: nothing made again needs them"},
	{Recordable, "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal", "a signal is sent once; that it was taken is an event of its own"},
	{Recordable, "wait4 waitid", "the child has been reaped"},
	{Recordable, "semget semop semtimedop msgget msgsnd shmget mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr", "as of sockets"},

	{Irrevocable, "fork vfork clone3 execve execveat exit_group", "another process, or none. Threads are pthread_create's (guardlog.h)"},
	{Irrevocable, "setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups setpgid setsid capset unshare setns chroot pivot_root", "what the process may do is another thing afterwards"},
	{Irrevocable, "seccomp landlock_add_rule landlock_restrict_self ptrace userfaultfd", "the agent's own calls depend on it"},
	{Irrevocable, "shmat shmdt remap_file_pages", "shared memory: no rollback touches it"},
	{Irrevocable, "io_setup io_destroy io_getevents io_pgetevents io_submit io_cancel io_uring_setup io_uring_enter io_uring_register", "the kernel writes to memory when it likes"},
	{Recordable, "pkey_alloc pkey_free", "keys stay as the recording left them. One that was given has rights in a register, which nobody sets again: the agent loses that epoch"},
	{Irrevocable, "pkey_mprotect mseal map_shadow_stack process_madvise memfd_secret modify_ldt rseq", "the rollback does not know of it"},
	{Irrevocable, "openat2 mincore migrate_pages move_pages set_mempolicy_home_node ustat sysfs msgrcv shmctl name_to_handle_at " +
		"open_by_handle_at fanotify_init fanotify_mark process_vm_readv process_vm_writev kcmp cachestat perf_event_open bpf", "rare: nothing was done to make it anything else"},
	{Irrevocable, "adjtimex clock_adjtime clock_settime settimeofday mount umount2 move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick mount_setattr statmount listmount listns swapon swapoff reboot " +
		"sethostname setdomainname iopl ioperm init_module finit_module delete_module quotactl quotactl_fd acct vhangup syslog kexec_load kexec_file_load add_key request_key keyctl process_mrelease " +
		"lsm_get_self_attr lsm_set_self_attr lsm_list_modules setxattrat getxattrat listxattrat removexattrat file_getattr file_setattr", "the machine's: rare"},
	{Irrevocable, "uselib _sysctl create_module get_kernel_syms query_module nfsservctl getpmsg putpmsg afs_syscall tuxcall security set_thread_area get_thread_area lookup_dcookie epoll_ctl_old " +
		"epoll_wait_old vserver uretprobe uprobe rseq_slice_yield", "not there, or nobody's"},
}

// is gives a rule for each value of an argument, of which the kernel looks at 32 bits.
func is(class Class, arg uint8, values ...uint64) (rules []Rule) {
	for _, v := range values {
		rules = append(rules, Rule{Arg: arg, Mask: 1<<32 - 1, Value: v, Class: class})
	}
	return rules
}

// The rules of calls whose arguments decide.
var single = []Row{
	{"read", Recordable, []Rule{{0, File, 0, 0, Revocable}}, "a file's content is not recorded"},
	{"pread64", Recordable, []Rule{{0, File, 0, 0, Revocable}}, "as read"},
	{"readv", Recordable, []Rule{{0, File, 0, 0, Revocable}}, "as read"},
	{"preadv", Recordable, []Rule{{0, File, 0, 0, Revocable}}, "as read"},
	{"preadv2", Recordable, []Rule{{0, File, 0, 0, Revocable}}, "as read"},
	{"close", Recordable, []Rule{{0, Writer, 0, 0, Recordable}, {0, File, 0, 0, Deferrable}},
		"a file that was open for reading is kept until the epoch's end, as its reads are made again. One that was open for writing must be closed at once: others may wait for that (inotify, ETXTBSY); " +
			"of one that could be read too, and was, the place is kept. Pipes and sockets are closed at once: their other end sees it"},
	{"dup2", Recordable, []Rule{{1, Writer, 0, 0, Recordable}, {1, File, 0, 0, Deferrable}}, "it closes its second argument"},
	{"dup3", Recordable, []Rule{{1, Writer, 0, 0, Recordable}, {1, File, 0, 0, Deferrable}}, "it closes its second argument"},
	{"mmap", Irrevocable, []Rule{{3, Masked, unix.MAP_SHARED | unix.MAP_ANONYMOUS, unix.MAP_SHARED | unix.MAP_ANONYMOUS, Irrevocable}, {3, AnyBit, unix.MAP_ANONYMOUS, 0, Repeatable},
		{4, Reader, 0, 0, Repeatable}, {3, AnyBit, unix.MAP_SHARED, 0, Irrevocable}, {4, File, 0, 0, Repeatable}},
		"private, of files whose content stays, or shared, but by a descriptor that does not let it be written to (setlocale does so): a rollback puts the map back, and the recording's address is asked for again. MAP_SHARED_VALIDATE has the bit too"},
	{"mremap", Repeatable, []Rule{{3, AnyBit, unix.MREMAP_DONTUNMAP, 0, Irrevocable}}, "as mmap"},
	{"madvise", Irrevocable, append(
		is(Repeatable, 2, unix.MADV_NORMAL, unix.MADV_RANDOM, unix.MADV_SEQUENTIAL, unix.MADV_WILLNEED, unix.MADV_DONTNEED, unix.MADV_FREE, unix.MADV_DONTFORK, unix.MADV_DOFORK, unix.MADV_MERGEABLE, unix.MADV_UNMERGEABLE),
		is(Repeatable, 2, unix.MADV_HUGEPAGE, unix.MADV_NOHUGEPAGE, unix.MADV_DONTDUMP, unix.MADV_DODUMP, unix.MADV_WIPEONFORK, unix.MADV_KEEPONFORK, unix.MADV_COLD, unix.MADV_PAGEOUT,
			unix.MADV_POPULATE_READ, unix.MADV_POPULATE_WRITE, unix.MADV_COLLAPSE)...),
		"MADV_FREE is made MADV_DONTNEED, as pages would vanish when the kernel likes. MADV_REMOVE makes holes in files, others are rare"},
	{"close_range", Recordable, []Rule{{2, AnyBit, unix.CLOSE_RANGE_UNSHARE, 0, Irrevocable}}, "each as by close; or they are closed when another program is executed"},
	{"landlock_create_ruleset", Irrevocable, is(Recordable, 2, unix.LANDLOCK_CREATE_RULESET_VERSION), "what the kernel knows of it"},
	{"clone", Irrevocable, []Rule{{0, AnyBit, unix.CLONE_THREAD, 0, Recordable}}, "a thread: that of the recording takes its place (guardlog.h)"},
	{"exit", Deferrable, nil, "the thread waits for the epoch's end (guardlog.h)"},
	{"personality", Irrevocable, is(Repeatable, 0, 0xffffffff), "a question"},
	{"arch_prctl", Irrevocable, is(Repeatable, 0, 0x1003 /* ARCH_GET_FS */, 0x1004 /* ARCH_GET_GS */), ""},
	{"fcntl", Irrevocable, is(Recordable, 1, unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_GETOWN, unix.F_SETOWN, unix.F_GETSIG, unix.F_SETSIG,
		unix.F_GETLK, unix.F_SETLK, unix.F_SETLKW, unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_OFD_SETLKW, unix.F_GETPIPE_SZ, unix.F_SETPIPE_SZ, unix.F_GET_SEALS, unix.F_ADD_SEALS),
		"what it sets stays set"},
	{"ioctl", Irrevocable, is(Recordable, 1, unix.TCGETS, unix.TCGETS2, unix.TCSETS, unix.TCSETSW, unix.TCSETSF, unix.TIOCGWINSZ, unix.TIOCSWINSZ, unix.TIOCGPGRP, unix.TIOCSPGRP, unix.TIOCGSID, unix.TIOCOUTQ, 0x541b, /* FIONREAD */
		0x5421 /* FIONBIO */, 0x5452 /* FIOASYNC */, 0x5451 /* FIOCLEX */, 0x5450 /* FIONCLEX */, unix.TCFLSH, unix.TIOCNOTTY, unix.TIOCSCTTY, unix.TIOCSPTLCK, unix.TIOCGPTN, 0x5441, /* TIOCGPTPEER */
		unix.FICLONE, unix.FICLONERANGE, unix.FS_IOC_GETFLAGS, unix.BLKGETSIZE64, unix.SIOCGIFINDEX, unix.SIOCGIFNAME, unix.SIOCGIFFLAGS, unix.SIOCGIFADDR, unix.SIOCGIFMTU, unix.SIOCGIFHWADDR),
		"of which it is known what they write (kernel.c)"},
	{"prctl", Irrevocable, append(is(Recordable, 0, unix.PR_GET_NAME, unix.PR_SET_NAME, unix.PR_GET_DUMPABLE, unix.PR_SET_PDEATHSIG, unix.PR_GET_TIMERSLACK, unix.PR_SET_TIMERSLACK, unix.PR_GET_NO_NEW_PRIVS,
		unix.PR_CAPBSET_READ, unix.PR_GET_KEEPCAPS, unix.PR_GET_SECUREBITS, unix.PR_GET_THP_DISABLE, unix.PR_SET_THP_DISABLE, unix.PR_SET_PTRACER, unix.PR_SET_CHILD_SUBREAPER,
		unix.PR_GET_SECCOMP, unix.PR_GET_TIMING, unix.PR_GET_SPECULATION_CTRL),
		is(Repeatable, 0, unix.PR_SET_VMA)...), "names of mappings go with them"},
	{"semctl", Irrevocable, is(Recordable, 2, 0 /* IPC_RMID */, 11 /* GETPID */, 12 /* GETVAL */, 14 /* GETNCNT */, 15 /* GETZCNT */, 16 /* SETVAL */), "of which it is known that they write no memory"},
	{"msgctl", Irrevocable, is(Recordable, 1, 0 /* IPC_RMID */), "of which it is known that it writes no memory"},
}

// By these the threads of a program wake each other through the kernel. Not among them: futexes, which are the program's memory; reads, as what makes room for a writer, and semop, which may wait before they give; locks on files, and files' names.
var orders = []struct {
	order Order
	names string
}{
	{Gives | Takes | NotFiles, "write writev pwritev2 close"},
	{Gives | Takes, "close_range dup2 dup3 sendfile splice tee vmsplice connect sendto sendmsg sendmmsg"},
	{Gives, "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal alarm setitimer timer_settime timerfd_settime bind listen shutdown epoll_ctl msgsnd mq_timedsend"},
	{Takes, "read readv preadv2 recvfrom recvmsg recvmmsg accept accept4 getsockopt ioctl poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2 mq_timedreceive " +
		"pause rt_sigsuspend rt_sigtimedwait rt_sigpending wait4 waitid"},
}

var orderOf = sync.OnceValue(func() map[string]Order {
	m := map[string]Order{}
	for _, o := range orders {
		for _, name := range strings.Fields(o.names) {
			m[name] |= o.order
		}
	}
	return m
})

// OrderOf gives a call's by its name; 0: it has none.
func OrderOf(name string) Order { return orderOf()[name] }

var rows = sync.OnceValue(func() (list []Row) {
	for _, g := range groups {
		for _, name := range strings.Fields(g.names) {
			list = append(list, Row{Name: name, Class: g.class, Why: g.why})
		}
	}
	return append(list, single...)
})

// Rows lists the table.
func Rows() []Row { return rows() }

var byNumber = sync.OnceValue(func() map[int]Row {
	m := map[int]Row{}
	for _, r := range Rows() {
		if c := syscalls.Named(r.Name); c != nil {
			m[c.Number] = r
		}
	}
	return m
})
