// sqlite_threads DB N: threads use libsqlite3 in the three ways it allows (a connection each to one file, one serialised connection
// for all, a shared cache in memory), N transactions each, and print sums that do not depend on the schedule.
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4 };

static int count;
static const char *file;
static sqlite3 *shared;

static void must(int rc, sqlite3 *db, const char *what) {
	if (rc == SQLITE_OK || rc == SQLITE_DONE || rc == SQLITE_ROW) return;
	fprintf(stderr, "%s: %s\n", what, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
	exit(1);
}

static void run(sqlite3 *db, const char *sql) {
	int rc;
	do rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
	while (rc == SQLITE_BUSY || rc == SQLITE_LOCKED);
	must(rc, db, sql);
}

static sqlite3 *open_file(void) {
	sqlite3 *db;
	must(sqlite3_open(file, &db), NULL, file);
	sqlite3_busy_timeout(db, 60000);
	run(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;");
	return db;
}

static void *own_connection(void *arg) {
	long id = (long)arg;
	sqlite3 *db = open_file();
	for (int i = 0; i < count; i++) {
		char *sql = sqlite3_mprintf("BEGIN IMMEDIATE; INSERT INTO t VALUES(%ld,%d); UPDATE s SET v=v+1; COMMIT;", id, i);
		run(db, sql);
		sqlite3_free(sql);
	}
	must(sqlite3_close(db), NULL, "close");
	return NULL;
}

static void *one_connection(void *arg) {
	long id = (long)arg;
	sqlite3_stmt *insert;
	must(sqlite3_prepare_v2(shared, "INSERT INTO u VALUES(?,?)", -1, &insert, NULL), shared, "prepare");
	for (int i = 0; i < count * 4; i++) {
		sqlite3_bind_int64(insert, 1, id);
		sqlite3_bind_int(insert, 2, i);
		must(sqlite3_step(insert), shared, "insert");
		must(sqlite3_reset(insert), shared, "reset");
	}
	must(sqlite3_finalize(insert), shared, "finalize");
	return NULL;
}

static void *shared_cache(void *arg) {
	long id = (long)arg;
	sqlite3 *db;
	must(sqlite3_open_v2("file:cache?mode=memory&cache=shared", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, NULL), NULL, "open");
	sqlite3_busy_timeout(db, 60000);
	for (int i = 0; i < count; i++) {
		char *sql = sqlite3_mprintf("INSERT INTO w VALUES(%ld,%d)", id, i);
		run(db, sql);
		sqlite3_free(sql);
	}
	must(sqlite3_close(db), NULL, "close");
	return NULL;
}

static void all(void *(*fn)(void *)) {
	pthread_t t[THREADS];
	for (long i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, fn, (void *)i);
	for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
}

static void show(sqlite3 *db, const char *sql) {
	sqlite3_stmt *q;
	must(sqlite3_prepare_v2(db, sql, -1, &q, NULL), db, sql);
	while (sqlite3_step(q) == SQLITE_ROW) printf("%s -> %s\n", sql, sqlite3_column_text(q, 0));
	sqlite3_finalize(q);
}

int main(int argc, char **argv) {
	if (argc != 3) return 2;
	file = argv[1], count = atoi(argv[2]);
	shared = open_file();
	run(shared, "CREATE TABLE t(a,b); CREATE TABLE u(a,b); CREATE TABLE s(v); INSERT INTO s VALUES(0);");
	all(own_connection);
	show(shared, "SELECT count(*)||' '||sum(a)||' '||sum(b) FROM t");
	show(shared, "SELECT v FROM s");
	run(shared, "BEGIN");
	all(one_connection);
	run(shared, "COMMIT");
	show(shared, "SELECT count(*)||' '||sum(a)||' '||sum(b) FROM u");
	show(shared, "PRAGMA integrity_check");
	sqlite3 *cache;
	must(sqlite3_open_v2("file:cache?mode=memory&cache=shared", &cache, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, NULL), NULL, "open");
	run(cache, "CREATE TABLE w(a,b)");
	all(shared_cache);
	show(cache, "SELECT count(*)||' '||sum(a)||' '||sum(b) FROM w");
	must(sqlite3_close(cache), NULL, "close");
	must(sqlite3_close(shared), NULL, "close");
	sqlite3_shutdown();
	return 0;
}
