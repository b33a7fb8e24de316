/* env.c: the environment of a child. init.c takes our two variables out of the program's environment; here they are put back, into a
 * copy, for a child that can load us, and only there. Everything may run in a vfork child: raw system calls and the stack only. */
#include "proc.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define PRELOAD "LD_PRELOAD="
#define SESSION "RIPSTOP_SESSION="
#define HEAD_BYTES 256       /* what the kernel reads of a script's first line */
#define MAX_SCRIPT_DEPTH 5   /* as the kernel's */
#define MAX_INTERPRETER 256
#define EXTRA 4              /* entries: LD_PRELOAD, RIPSTOP_SESSION, RIPSTOP_PAD, NULL */
#define MAX_CANDIDATE 1024   /* PATH entries longer than this are not looked at */

static size_t length(const char *s)
{
	size_t n = 0;
	while (s[n])
		n++;
	return n;
}

static bool begins(const char *s, const char *with)
{
	while (*with)
		if (*s++ != *with++)
			return false;
	return true;
}

static bool ends(const char *s, const char *with)
{
	size_t n = length(s), m = length(with);
	return n >= m && begins(s + n - m, with);
}

static void copy(char *to, const char *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = from[i];
}

const char *rs_env_get(const char *name)
{
	size_t n = length(name);
	for (char **e = environ; e && *e; e++)
		if (begins(*e, name) && (*e)[n] == '=')
			return *e + n + 1;
	return NULL;
}

/* --- can the file load us? ----------------------------------------------------------------------------------------------- */


/* After chroot, a change of user, or the end of the session the agent's file may be out of reach; ld.so would complain on stderr. */
static bool agent_reachable(const char *path)
{
	long r = RS_SYS4(439 /* faccessat2 */, AT_FDCWD, path, 4 /* R_OK */, AT_EACCESS);
	if (r == -ENOSYS || r == -EPERM)
		r = RS_SYS3(SYS_faccessat, AT_FDCWD, path, 4);
	return r == 0;
}

/* ld.so started by name: it loads us too, unless it is only asked to list or verify. */
static int why_not_loader(char *const *argv)
{
	for (size_t i = 1; argv && argv[0] && argv[i] && begins(argv[i], "--"); i++)
		if (begins(argv[i], "--list") || begins(argv[i], "--verify") || begins(argv[i], "--help") || begins(argv[i], "--version"))
			return -1;
	return 0;
}

static int why_not_elf(int fd, const Elf64_Ehdr *h, const char *path, char *const *argv)
{
	if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_machine != EM_X86_64)
		return RS_UNFOLLOWED_FOREIGN;
	if ((h->e_type != ET_EXEC && h->e_type != ET_DYN) || h->e_phentsize != sizeof(Elf64_Phdr))
		return 0; /* the kernel refuses it */
	for (unsigned i = 0; i < h->e_phnum && i < 128; i++) {
		Elf64_Phdr ph;
		if (RS_SYS4(SYS_pread64, fd, &ph, sizeof ph, h->e_phoff + i * sizeof ph) != sizeof ph)
			break;
		if (ph.p_type != PT_INTERP)
			continue;
		char name[MAX_INTERPRETER];
		size_t n = ph.p_filesz < sizeof name - 1 ? ph.p_filesz : sizeof name - 1;
		long got = RS_SYS4(SYS_pread64, fd, name, n, ph.p_offset);
		name[got > 0 ? got : 0] = 0;
		if (!ends(name, "/ld-linux-x86-64.so.2"))
			return RS_UNFOLLOWED_FOREIGN;
		return rs_sanitizer_in(fd, h) && !rs_tsan_again(fd) ? RS_UNFOLLOWED_SANITIZER : 0;
	}
	return ends(path, "ld-linux-x86-64.so.2") ? why_not_loader(argv) : RS_UNFOLLOWED_STATIC;
}

/* In secure mode ld.so ignores us, and what it leaves of our variables would be seen. */
static bool gains_privilege(int fd, const struct stat *st)
{
	long ruid = RS_SYS0(SYS_getuid), euid = RS_SYS0(SYS_geteuid), rgid = RS_SYS0(SYS_getgid), egid = RS_SYS0(SYS_getegid);
	if (st->st_mode & S_ISUID)
		euid = st->st_uid;
	if ((st->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
		egid = st->st_gid;
	return ruid != euid || rgid != egid || (ruid != 0 && RS_SYS4(SYS_fgetxattr, fd, "security.capability", NULL, 0) > 0);
}

/* Follows the first lines of scripts as the kernel does. What cannot be read, or is no format that we know, is taken for something that
 * will load us: if it is not executable either, nothing happens. */
static int why_not_file(int dirfd, const char *path, char *const *argv)
{
	char head[HEAD_BYTES + 1], interpreter[HEAD_BYTES + 1];
	for (int depth = 0; depth <= MAX_SCRIPT_DEPTH; depth++) {
		struct stat st;
		/* Stat before open: to open a device or a FIFO could have effects. */
		if (RS_SYS4(SYS_newfstatat, dirfd, path, &st, path[0] ? 0 : AT_EMPTY_PATH) < 0 || !S_ISREG(st.st_mode))
			return 0;
		long fd;
		if (path[0] == 0) { /* fexecve; the descriptor may be O_PATH, so it is opened anew */
			char link[40] = "/proc/self/fd/";
			size_t n = length(link);
			char digits[12];
			size_t d = 0;
			for (unsigned v = (unsigned)dirfd; d == 0 || v; v /= 10)
				digits[d++] = (char)('0' + v % 10);
			while (d)
				link[n++] = digits[--d];
			link[n] = 0;
			fd = RS_SYS4(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
		} else {
			fd = RS_SYS4(SYS_openat, dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
		}
		if (fd < 0)
			return (st.st_mode & S_ISUID) ? RS_UNFOLLOWED_SETUID : 0;
		long n = RS_SYS4(SYS_pread64, fd, head, HEAD_BYTES, 0);
		bool script = n > 2 && head[0] == '#' && head[1] == '!';
		int why = 0;
		if (n >= (long)sizeof(Elf64_Ehdr) && begins(head, ELFMAG)) {
			Elf64_Ehdr h;
			__builtin_memcpy(&h, head, sizeof h);
			why = gains_privilege((int)fd, &st) ? RS_UNFOLLOWED_SETUID : why_not_elf((int)fd, &h, path, argv);
		}
		RS_SYS1(SYS_close, fd);
		if (!script)
			return why;
		head[n] = 0;
		long i = 2, m = 0;
		while (head[i] == ' ' || head[i] == '\t')
			i++;
		while (head[i] && head[i] != ' ' && head[i] != '\t' && head[i] != '\n')
			interpreter[m++] = head[i++];
		interpreter[m] = 0;
		if (m == 0)
			return 0;
		path = interpreter;
		dirfd = AT_FDCWD;
		argv = NULL;
	}
	return 0;
}

/* As execvp looks it up: the first that is there. A file without a known format would be given to the shell, which loads us. */
static int why_not_search(const char *file, char *const *argv)
{
	for (const char *s = file; *s; s++)
		if (*s == '/')
			return why_not_file(AT_FDCWD, file, argv);
	if (!*file)
		return 0;
	const char *p = rs_env_get("PATH");
	if (!p)
		p = "/bin:/usr/bin";
	size_t n = length(file);
	char candidate[MAX_CANDIDATE];
	for (;;) {
		size_t d = 0;
		while (p[d] && p[d] != ':')
			d++;
		if (d + n + 2 <= sizeof candidate) {
			size_t m = d;
			copy(candidate, p, d);
			if (d)
				candidate[m++] = '/';
			copy(candidate + m, file, n + 1);
			if (RS_SYS3(SYS_faccessat, AT_FDCWD, candidate, 1 /* X_OK */) == 0)
				return why_not_file(AT_FDCWD, candidate, argv);
		}
		if (!p[d])
			return 0;
		p += d + 1;
	}
}

/* --- the vector ------------------------------------------------------------------------------------------------------------ */

void rs_plan_make(struct rs_plan *p, int dirfd, const char *path, bool search, char *const *argv, char *const *envp)
{
	*p = (struct rs_plan){.envp = envp, .why = -1, .agent = rs_env_preload, .home = rs_env_session};
	if (!rs_ctl || !path)
		return;
	if (!p->agent || !p->home) {
		p->why = rs_config.follow ? -1 : RS_UNFOLLOWED_TURNED_OFF;
		return;
	}
	if (rs_sandboxed) {
		p->why = RS_UNFOLLOWED_SANDBOX; /* and not one system call more than the program's own */
		return;
	}
	if (rs_session_over())
		return;
	bool trace = false; /* ldd: the loader only lists, and would list us */
	size_t n = 0, preload = SIZE_MAX, session = SIZE_MAX;
	for (; envp && envp[n]; n++) {
		if (begins(envp[n], PRELOAD))
			preload = n; /* the last one counts for ld.so */
		else if (begins(envp[n], SESSION))
			session = n;
		else if (begins(envp[n], "LD_TRACE_LOADED_OBJECTS="))
			trace = true;
	}
	if (trace)
		return;
	p->why = search ? why_not_search(path, argv) : why_not_file(dirfd, path, argv);
	if (!p->why && preload != SIZE_MAX && rs_sanitizer_preloaded(envp[preload] + sizeof(PRELOAD) - 1))
		p->why = RS_UNFOLLOWED_SANITIZER;
	if (p->why)
		return;
	if (!agent_reachable(p->agent + sizeof(PRELOAD) - 1)) {
		p->why = RS_UNFOLLOWED_NO_SESSION;
		return;
	}
	p->count = n;
	p->preload = preload == SIZE_MAX ? n : preload;
	p->session = session == SIZE_MAX ? n : session;
	if (p->preload < n)
		p->preload_len = length(envp[p->preload] + sizeof(PRELOAD) - 1);
	p->need = (n + EXTRA) * sizeof(char *) + length(p->agent) + 1 + p->preload_len + 1;
}

void *rs_plan_map(struct rs_plan *p)
{
	long r = RS_SYS6(SYS_mmap, 0, p->need, 3 /* read, write */, 0x22 /* private, anonymous */, -1, 0);
	p->map = r < 0 && r > -4096 ? NULL : (void *)r;
	if (p->map && rs_vfork.depth) {
		/* If the exec succeeds only the parent can give the memory back. */
		rs_vfork.map = p->map;
		rs_vfork.map_bytes = p->need;
	}
	return p->map;
}

void rs_plan_unmap(struct rs_plan *p)
{
	if (p->map)
		RS_SYS2(SYS_munmap, p->map, p->need);
	if (p->map && rs_vfork.map == p->map)
		rs_vfork.map = NULL;
	p->map = NULL;
}

/* The order of the variables stays: ours come last, and LD_PRELOAD in the place of the program's own, so that init.c can restore exactly
 * what the program passed; it wants an even number of entries to take out. Another thread may be changing the environment: never more
 * than was counted is taken. */
char **rs_plan_env(struct rs_plan *p, void *buf)
{
	if (!buf) {
		p->why = RS_UNFOLLOWED_NO_SESSION;
		p->need = 0;
		return (char **)(uintptr_t)p->envp;
	}
	char **v = buf;
	char *text = (char *)(v + p->count + EXTRA);
	size_t own = 0;
	for (; own < p->count && p->envp[own]; own++)
		v[own] = p->envp[own];
	size_t n = own, at = length(p->agent);
	copy(text, p->agent, at);
	bool pad = p->preload < own;
	if (pad) {
		const char *value = v[p->preload] + sizeof(PRELOAD) - 1;
		text[at++] = ':';
		for (size_t i = 0; i < p->preload_len && value[i]; i++)
			text[at++] = value[i];
		v[p->preload] = text;
	} else {
		v[n++] = text;
	}
	text[at] = 0;
	if (p->session < own)
		v[p->session] = p->home;
	else
		v[n++] = p->home;
	if (pad)
		v[n++] = (char *)"RIPSTOP_PAD=";
	v[n] = NULL;
	return v;
}
