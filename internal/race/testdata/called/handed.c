// What one thread hands to another through the kernel by calls that are not reads and writes of its own: stdio on pipes, sockets and files, and what the kernel tells of files and of processes. What is written behind the
// hand-over (late) is a race each time.
#include "../run.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <wchar.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static FILE *in, *out, *raw, *win, *wout, *socket_in, *socket_out, *first, *last, *log_out, *log_in;
static int pair[2], ends[2], file, watch, watch_dir, child_fd[3];
static pid_t child[3];
static char inside[64];

// A line on a pipe.
static long lines_early, lines_late;
static void *sends_lines(void *p)
{
	lines_early = 1;
	fputs("line\n", out);
	fflush(out);
	lines_late = 1; // race-mov lines
	return p;
}
static void *takes_lines(void *p)
{
	char line[16];
	use(fgets(line, sizeof line, in));
	use(lines_early);
	use(lines_late); // race-mov lines
	return p;
}

// A stream without a buffer, read by a format.
static long words_early, words_late;
static void *sends_words(void *p)
{
	words_early = 1;
	fprintf(raw, "%d ", 12);
	words_late = 1; // race-mov words
	return p;
}
static void *takes_words(void *p)
{
	int n;
	use(fscanf(in, "%d", &n));
	use(words_early);
	use(words_late); // race-mov words
	return p;
}

// Blocks on a socket.
static long blocks_early, blocks_late;
static void *sends_blocks(void *p)
{
	blocks_early = 1;
	use(fwrite("block", 1, 5, socket_out));
	fflush(socket_out);
	blocks_late = 1; // race-mov blocks
	return p;
}
static void *takes_blocks(void *p)
{
	char block[5];
	use(fread(block, 1, sizeof block, socket_in));
	use(blocks_early);
	use(blocks_late); // race-mov blocks
	return p;
}

// Bytes by calls that take no lock.
static long bytes_early, bytes_late;
static void *sends_bytes(void *p)
{
	bytes_early = 1;
	putc_unlocked('x', out);
	fflush_unlocked(out);
	bytes_late = 1; // race-mov bytes
	return p;
}
static void *takes_bytes(void *p)
{
	use(getc_unlocked(in));
	use(bytes_early);
	use(bytes_late); // race-mov bytes
	return p;
}

// A line of any length, written past the stream.
static long lengths_early, lengths_late;
static void *sends_lengths(void *p)
{
	lengths_early = 1;
	dprintf(fileno(out), "%s\n", "some more text");
	lengths_late = 1; // race-mov lengths
	return p;
}
static void *takes_lengths(void *p)
{
	char *line = 0;
	size_t n = 0;
	use(getline(&line, &n, in));
	free(line);
	use(lengths_early);
	use(lengths_late); // race-mov lengths
	return p;
}

// Wide characters.
static long wide_early, wide_late;
static void *sends_wide(void *p)
{
	wide_early = 1;
	fputws(L"wide\n", wout);
	fflush(wout);
	wide_late = 1; // race-mov wide
	return p;
}
static void *takes_wide(void *p)
{
	wchar_t line[16];
	use(fgetws(line, 16, win));
	use(wide_early);
	use(wide_late); // race-mov wide
	return p;
}

// What lies in a buffer is written when all are.
static long all_early, all_late;
static void *sends_all(void *p)
{
	fputs("early\n", out);
	all_early = 1;
	fflush(0);
	all_late = 1; // race-mov all
	return p;
}
static void *takes_all(void *p)
{
	char line[16];
	use(fgets(line, sizeof line, in));
	use(all_early);
	use(all_late); // race-mov all
	return p;
}

// The end of the file, when the other end is closed.
static long ends_early, ends_late;
static void *sends_ends(void *p)
{
	ends_early = 1;
	fclose(last);
	ends_late = 1; // race-mov ends
	return p;
}
static void *takes_ends(void *p)
{
	while (getc(first) != EOF)
		;
	use(ends_early);
	use(ends_late); // race-mov ends
	return p;
}

// A regular file that is looked at until there is something.
static long file_early, file_late;
static void *sends_file(void *p)
{
	file_early = 1;
	fputs("text", log_out);
	fflush(log_out);
	file_late = 1; // race-mov file
	return p;
}
static void *takes_file(void *p)
{
	while (fgetc(log_in) == EOF)
		clearerr(log_in);
	use(file_early);
	use(file_late); // race-mov file
	return p;
}

// From a write to a stream's read.
static long calls_early, calls_late;
static void *sends_calls(void *p)
{
	calls_early = 1;
	use(write(fileno(out), "call\n", 5));
	calls_late = 1; // race-mov calls
	return p;
}
static void *takes_calls(void *p)
{
	char line[16];
	use(fgets(line, sizeof line, in));
	use(calls_early);
	use(calls_late); // race-mov calls
	return p;
}

// How much there is to be read, asked for until there is some.
static long counted_early, counted_late;
static void *sends_counted(void *p)
{
	counted_early = 1;
	use(write(pair[1], "x", 1));
	counted_late = 1; // race-mov counted
	return p;
}
static void *takes_counted(void *p)
{
	int n = 0;
	while (n == 0)
		use(ioctl(pair[0], FIONREAD, &n));
	use(counted_early);
	use(counted_late); // race-mov counted
	return p;
}

// A message that is looked at and stays.
static long peeked_early, peeked_late;
static void *sends_peeked(void *p)
{
	peeked_early = 1;
	use(send(ends[1], "x", 1, 0));
	peeked_late = 1; // race-mov peeked
	return p;
}
static void *takes_peeked(void *p)
{
	char c;
	use(recv(ends[0], &c, 1, MSG_PEEK));
	use(peeked_early);
	use(peeked_late); // race-mov peeked
	return p;
}

// A file that changes, by inotify.
static long changed_early, changed_late;
static void *sends_changed(void *p)
{
	changed_early = 1;
	use(write(file, "x", 1));
	changed_late = 1; // race-mov changed
	return p;
}
static void *takes_changed(void *p)
{
	char event[256];
	use(read(watch, event, sizeof event));
	use(changed_early);
	use(changed_late); // race-mov changed
	return p;
}

// A file that appears, by poll of inotify.
static long appeared_early, appeared_late;
static void *sends_appeared(void *p)
{
	appeared_early = 1;
	use(mkdir(inside, 0700));
	appeared_late = 1; // race-mov appeared
	return p;
}
static void *takes_appeared(void *p)
{
	struct pollfd f = {watch_dir, POLLIN, 0};
	use(poll(&f, 1, -1));
	use(appeared_early);
	use(appeared_late); // race-mov appeared
	return p;
}

// A child that is killed, by poll of its descriptor.
static long killed_early, killed_late;
static void *sends_killed(void *p)
{
	killed_early = 1;
	kill(child[0], SIGKILL);
	killed_late = 1; // race-mov killed
	return p;
}
static void *takes_killed(void *p)
{
	struct pollfd f = {child_fd[0], POLLIN, 0};
	use(poll(&f, 1, -1));
	use(killed_early);
	use(killed_late); // race-mov killed
	return p;
}

// The same by epoll, and what the kernel says when it is waited for by the descriptor.
static long reaped_early, reaped_late;
static void *sends_reaped(void *p)
{
	reaped_early = 1;
	kill(child[1], SIGKILL);
	reaped_late = 1; // race-mov reaped
	return p;
}
static void *takes_reaped(void *p)
{
	struct epoll_event e = {.events = EPOLLIN};
	int ep = epoll_create1(0);
	epoll_ctl(ep, EPOLL_CTL_ADD, child_fd[1], &e);
	use(epoll_wait(ep, &e, 1, -1));
	close(ep);
	use(reaped_early);
	use(reaped_late); // race-mov reaped
	return p;
}

// By wait for it.
static long waited_early, waited_late;
static void *sends_waited(void *p)
{
	waited_early = 1;
	kill(child[2], SIGKILL);
	waited_late = 1; // race-mov waited
	return p;
}
static void *takes_waited(void *p)
{
	siginfo_t i;
	use(waitid(P_PIDFD, (id_t)child_fd[2], &i, WEXITED));
	use(waited_early);
	use(waited_late); // race-mov waited
	return p;
}

// What goes into one pipe does not come out of another.
static long apart;
static void *sends_apart(void *p)
{
	apart = 1; // race-mov apart
	fputs("apart\n", out);
	fflush(out);
	return p;
}
static void *takes_apart(void *p)
{
	wchar_t line[16];
	use(fgetws(line, 16, win));
	use(apart); // race-mov apart
	return p;
}

static void stop(const char *what)
{
	perror(what);
	_exit(1);
}

static void streams(FILE **r, FILE **w, bool socket)
{
	int fds[2];
	if (socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, fds) : pipe(fds))
		stop("pipe");
	*r = fdopen(fds[0], "r");
	*w = fdopen(fds[1], "w");
}

int main(void)
{
	char path[] = "/tmp/raceXXXXXX", dir[] = "/tmp/raceXXXXXX";
	if ((file = mkstemp(path)) < 0 || !mkdtemp(dir) || pipe(pair) || socketpair(AF_UNIX, SOCK_DGRAM, 0, ends))
		stop("/tmp");
	streams(&in, &out, false);
	streams(&win, &wout, false);
	streams(&socket_in, &socket_out, true);
	streams(&first, &last, false);
	raw = fdopen(dup(fileno(out)), "w");
	setvbuf(raw, 0, _IONBF, 0);
	log_out = fopen(path, "w");
	log_in = fopen(path, "r");
	both(sends_lines, takes_lines);
	both(sends_words, takes_words);
	use(getc(in)); // the space
	both(sends_blocks, takes_blocks);
	both(sends_bytes, takes_bytes);
	both(sends_lengths, takes_lengths);
	both(sends_wide, takes_wide);
	both(sends_all, takes_all);
	fputws(L"wide\n", wout);
	fflush(wout);
	both(sends_apart, takes_apart);
	while (getc(in) != '\n')
		;
	both(sends_ends, takes_ends);
	both(sends_file, takes_file);
	both(sends_calls, takes_calls);
	both(sends_counted, takes_counted);
	both(sends_peeked, takes_peeked);
	watch = inotify_init1(0);
	watch_dir = inotify_init1(0);
	snprintf(inside, sizeof inside, "%s/inside", dir);
	if (inotify_add_watch(watch, path, IN_MODIFY) < 0 || inotify_add_watch(watch_dir, dir, IN_CREATE) < 0)
		stop("inotify_add_watch");
	both(sends_changed, takes_changed);
	both(sends_appeared, takes_appeared);
	rmdir(inside);
	rmdir(dir);
	unlink(path);
	// Last, as from now on channels count as one.
	for (int i = 0; i < 3; i++) {
		if (!(child[i] = fork()))
			for (;;)
				pause();
		child_fd[i] = (int)syscall(SYS_pidfd_open, child[i], 0);
		if (child_fd[i] < 0)
			stop("pidfd_open");
	}
	both(sends_killed, takes_killed);
	both(sends_reaped, takes_reaped);
	both(sends_waited, takes_waited);
	waitpid(child[0], 0, 0);
	waitpid(child[1], 0, 0);
	puts("done");
	return 0;
}
