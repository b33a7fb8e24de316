// A library that calls back.
static volatile int sink;
__attribute__((noinline)) static void inner(void (*f)(const char *), const char *name)
{
	f(name);
	sink++;
}
void through(void (*f)(const char *), const char *name)
{
	inner(f, name);
	sink++;
}
