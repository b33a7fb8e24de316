// Buffers that stdio reads and writes, from C++, beside strings of the standard library.
#include "../run.h"
#include <mutex>
#include <string>
#include <vector>

static FILE *in, *out;
static std::mutex mutex;

char line[64];
static void *gets(void *p) { use(fgets(line, sizeof line, in)); /* race fgets */ return p; }
static void *looks(void *p) { use(line[2]); /* race fgets */ return p; }
static void *looks_behind(void *p) { use(line[6]); return p; }

char block[64];
static void *reads(void *p) { use(fread(block, 2, 10, in)); /* race fread */ return p; }
static void *changes(void *p) { block[19] = 1; /* race fread */ return p; }
static void *changes_behind(void *p) { block[20] = 1; return p; }

char text[64] = "text";
static void *puts_it(void *p) { use(fputs(text, out)); /* race fputs */ return p; }
static void *writes_it(void *p) { use(fwrite(text, 1, 5, out)); return p; }
static void *ends_it(void *p) { text[4] = 0; /* race fputs */ return p; }

char number[16];
static volatile int value = 12345;
static void *prints(void *p) { use(snprintf(number, sizeof number, "%d", value)); /* race snprintf */ return p; }
static void *reads_end(void *p) { use(number[5]); /* race snprintf */ return p; }
static void *reads_behind(void *p) { use(number[6]); return p; }

// The code of std::string and std::vector that is compiled into the program calls memcpy and memmove.
static std::vector<int> *numbers;
static void *inserts(void *p)
{
	std::lock_guard<std::mutex> l(mutex);
	numbers->insert(numbers->begin(), numbers->size());
	std::string s(text, 4);
	s += "more of it, so that it is on the heap";
	return p;
}

int main()
{
	in = fopen("/dev/zero", "r");
	out = fopen("/dev/null", "w");
	FILE *lines = tmpfile();
	for (int i = 0; i < 10; i++)
		fputs("line\n", lines);
	rewind(lines);
	both(reads, changes);
	both(reads, changes_behind);
	fclose(in);
	in = lines;
	both(gets, looks);
	both(gets, looks_behind);
	both(puts_it, ends_it);
	both(puts_it, writes_it);
	both(prints, reads_end);
	both(prints, reads_behind);
	numbers = new std::vector<int>{1, 2, 3};
	both(inserts, inserts);
	printf("%d\n", numbers->front());
	delete numbers;
	return 0;
}
