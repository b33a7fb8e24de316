// A connection: what a thread did before connect comes before what another one does behind accept. The kernel lets accept return while connect has not, so that on a busy machine every third such program was told a race that is none:
// hence many rounds. What is written behind the last connect (late) is a race.
#include "../run.h"
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { ROUNDS = 60 };
static int listens, called_family;
static struct sockaddr_storage name;
static socklen_t name_size;

static void stop(const char *what)
{
	perror(what);
	_exit(1);
}

static void begin(int family, void *address, socklen_t size)
{
	listens = socket(family, SOCK_STREAM, 0);
	if (listens < 0 || bind(listens, address, size) || listen(listens, ROUNDS))
		stop("listen");
	memcpy(&name, address, size);
	name_size = size;
	called_family = family;
}

static int calls(void)
{
	int fd = socket(called_family, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&name, name_size))
		stop("connect");
	return fd;
}

static int answers(void)
{
	int fd = accept(listens, 0, 0);
	if (fd < 0)
		stop("accept");
	return fd;
}

// By an address of the machine's own, where the listener has any.
static long any_early[ROUNDS], any_late;
static void *calls_any(void *p)
{
	for (int i = 0; i < ROUNDS; i++) {
		any_early[i] = 1;
		calls();
	}
	any_late = 1; // race-mov any
	return p;
}
static void *answers_any(void *p)
{
	for (int i = 0; i < ROUNDS; i++) {
		int fd = answers();
		use(any_early[i]);
		close(fd);
	}
	use(any_late); // race-mov any
	return p;
}

// By IPv4, where the listener has IPv6. The descriptor does not block, so that connect ends before the connection is made, and is called again.
static long mapped_early[ROUNDS], mapped_late;
static void *calls_mapped(void *p)
{
	for (int i = 0; i < ROUNDS; i++) {
		mapped_early[i] = 1;
		int fd = socket(called_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(fd, (struct sockaddr *)&name, name_size);
		while (connect(fd, (struct sockaddr *)&name, name_size) && errno != EISCONN)
			sched_yield();
	}
	mapped_late = 1; // race-mov mapped
	return p;
}
static void *answers_mapped(void *p)
{
	for (int i = 0; i < ROUNDS; i++) {
		int fd = answers();
		use(mapped_early[i]);
		close(fd);
	}
	use(mapped_late); // race-mov mapped
	return p;
}

// By a name.
static long named_early[ROUNDS], named_late;
static void *calls_named(void *p)
{
	for (int i = 0; i < ROUNDS; i++) {
		named_early[i] = 1;
		calls();
	}
	named_late = 1; // race-mov named
	return p;
}
static void *answers_named(void *p)
{
	for (int i = 0; i < ROUNDS; i++) {
		int fd = answers();
		use(named_early[i]);
		close(fd);
	}
	use(named_late); // race-mov named
	return p;
}

int main(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	begin(AF_INET, &any, sizeof any);
	getsockname(listens, (struct sockaddr *)&name, &name_size);
	((struct sockaddr_in *)&name)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	both(calls_any, answers_any);
	close(listens);

	struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
	int six = socket(AF_INET6, SOCK_STREAM, 0); // there is none where IPv6 is turned off
	if (six >= 0 && bind(six, (struct sockaddr *)&any6, sizeof any6) == 0) {
		close(six);
		begin(AF_INET6, &any6, sizeof any6);
		socklen_t size = sizeof any6;
		getsockname(listens, (struct sockaddr *)&any6, &size);
		any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		any.sin_port = any6.sin6_port;
		memcpy(&name, &any, sizeof any);
		name_size = sizeof any;
		called_family = AF_INET;
		both(calls_mapped, answers_mapped);
		close(listens);
	} else {
		called_family = AF_INET;
		begin(AF_INET, &any, sizeof any);
		getsockname(listens, (struct sockaddr *)&name, &name_size);
		both(calls_mapped, answers_mapped);
		close(listens);
	}

	struct sockaddr_un path = {.sun_family = AF_UNIX};
	snprintf(path.sun_path + 1, 64, "ripstop-connections-%d", (int)getpid());
	begin(AF_UNIX, &path, sizeof path);
	both(calls_named, answers_named);
	puts("done");
	return 0;
}
