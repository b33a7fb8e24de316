// A stack that overflows: nothing of ours can run on it, and the report says that it ended so.
static __attribute__((noinline)) int deep(volatile int *n)
{
	volatile int room[1024];
	room[0] = *n + 1;
	return deep(room) + room[0];
}

int main(void)
{
	int n = 0;
	return deep(&n);
}
