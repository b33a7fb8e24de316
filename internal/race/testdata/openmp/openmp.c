// OpenMP: all that orders is the runtime's, by atomics, movs and futexes of its own; and a reduction that was forgotten.
#include <omp.h>
#include <stdio.h>
#define N 1000
static long sums, counted, critical, atomic_count, tasks, missing, single, ordered_, locked_;
static long cells[N];
static int flags[8];
int main(void)
{
	omp_set_num_threads(4);
	#pragma omp parallel for reduction(+ : sums)
	for (int i = 0; i < N; i++)
		sums += i;
	#pragma omp parallel
	{
		#pragma omp for
		for (int i = 0; i < N; i++)
			cells[i] = i;
		#pragma omp for schedule(dynamic, 7)
		for (int i = 0; i < N; i++)
			cells[N - 1 - i]++;
		#pragma omp critical
		critical++;
		#pragma omp atomic
		atomic_count++;
		#pragma omp single
		single++;
		#pragma omp barrier
		#pragma omp master
		counted = cells[0] + single;
	}
	#pragma omp parallel
	#pragma omp single
	for (int i = 0; i < 20; i++) {
		#pragma omp task depend(inout : tasks)
		tasks++;
	}
	#pragma omp parallel for ordered
	for (int i = 0; i < 20; i++) {
		#pragma omp ordered
		ordered_++;
	}
	#pragma omp parallel sections
	{
		#pragma omp section
		flags[0]++;
		#pragma omp section
		flags[4]++;
	}
	omp_lock_t l;
	omp_init_lock(&l);
	#pragma omp parallel
	{
		omp_set_lock(&l);
		locked_++;
		omp_unset_lock(&l);
	}
	omp_destroy_lock(&l);
	#pragma omp parallel for
	for (int i = 0; i < 4; i++) // race-mov missing_reduction
		missing += i; // race-mov missing_reduction
	printf("%ld %ld %ld %ld %ld %ld %ld %ld\n", sums, counted, critical, atomic_count, tasks, single, ordered_, locked_);
	return missing < 0;
}
