# Locks that are taken before a fork, and threads of the child's: right.
import os
import threading


def some():
    threads = [threading.Thread(target=lambda: sum(range(1000))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


some()
pid = os.fork()
if pid == 0:
    some()
    os._exit(0)
os.waitpid(pid, 0)
print("done")
