// An exception that nobody catches, behind a loop of a million instructions that looks at what was wrong in each round.
#include <vector>

__attribute__((noinline)) static int sums(const std::vector<int> &v, int n)
{
	int s = 0;
	for (int i = 0; i < n; i++)
		s += v.at(i) * 31;
	return s;
}

int main()
{
	std::vector<int> v(200000, 1);
	return sums(v, 200001);
}
