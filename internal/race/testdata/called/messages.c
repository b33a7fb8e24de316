// What libc's functions write that tell of an error: the standard error stream's descriptor is a pipe here, which another thread reads. What it hands over was told as races. What is written behind the hand-over (late) is a
// race each time.
#include "../run.h"
#include <err.h>
#include <signal.h>
#include <stdarg.h>
#include <syslog.h>

static int ends[2];

static void takes(void)
{
	char line[256];
	for (ssize_t n = 0; !memchr(line, '\n', (size_t)n);)
		n = read(ends[0], line, sizeof line);
}

static void warns_by(const char *s, ...)
{
	va_list v;
	va_start(v, s);
	vwarnx(s, v);
	va_end(v);
}

// By perror.
static long perror_early, perror_late;
static void *sends_perror(void *p)
{
	perror_early = 1;
	perror("a message");
	perror_late = 1; // race-mov perror
	return p;
}
static void *takes_perror(void *p)
{
	takes();
	use(perror_early);
	use(perror_late); // race-mov perror
	return p;
}

// By warn.
static long warns_early, warns_late;
static void *sends_warns(void *p)
{
	warns_early = 1;
	warn("%s %d", "a message", 1);
	warns_late = 1; // race-mov warns
	return p;
}
static void *takes_warns(void *p)
{
	takes();
	use(warns_early);
	use(warns_late); // race-mov warns
	return p;
}

// By vwarnx, by way of a function of our own.
static long warnsx_early, warnsx_late;
static void *sends_warnsx(void *p)
{
	warnsx_early = 1;
	warns_by("%s", "a message");
	warnsx_late = 1; // race-mov warnsx
	return p;
}
static void *takes_warnsx(void *p)
{
	takes();
	use(warnsx_early);
	use(warnsx_late); // race-mov warnsx
	return p;
}

// By psignal.
static long signals_early, signals_late;
static void *sends_signals(void *p)
{
	signals_early = 1;
	psignal(SIGUSR1, "a message");
	signals_late = 1; // race-mov signals
	return p;
}
static void *takes_signals(void *p)
{
	takes();
	use(signals_early);
	use(signals_late); // race-mov signals
	return p;
}

// By syslog, which is told to write there as well.
static long logs_early, logs_late;
static void *sends_logs(void *p)
{
	logs_early = 1;
	syslog(LOG_INFO, "%s", "a message");
	logs_late = 1; // race-mov logs
	return p;
}
static void *takes_logs(void *p)
{
	takes();
	use(logs_early);
	use(logs_late); // race-mov logs
	return p;
}

// What a message is made of is read.
static char text[16] = "text";
static void *says(void *p)
{
	perror(text); // race text
	return p;
}
static void *changes(void *p)
{
	text[1] = 'x'; // race text
	return p;
}

int main(void)
{
	int was = dup(2);
	if (pipe(ends) || dup2(ends[1], 2) != 2)
		return 1;
	openlog("messages", LOG_PERROR, LOG_USER);
	both(sends_perror, takes_perror);
	both(sends_warns, takes_warns);
	both(sends_warnsx, takes_warnsx);
	both(sends_signals, takes_signals);
	both(sends_logs, takes_logs);
	both(says, changes);
	dup2(was, 2);
	puts("done");
	return 0;
}
