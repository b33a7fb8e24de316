/* plugin.c: a library to be loaded again and again. */
static int table[64];
int plugin(int x)
{
	for (int i = 0; i < 64; i++)
		table[i] += x * i;
	int s = 0;
	for (int i = 0; i < 64; i++)
		s = s * 3 + table[i];
	return s;
}
