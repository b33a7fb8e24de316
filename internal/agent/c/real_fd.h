/* real_fd.h: real functions that fd.c and fdmake.c interpose, for the channels by which the kernel orders threads. */
#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#define RS_REAL_FD \
	R(ssize_t, read, "", (int, void *, size_t)) \
	R(ssize_t, __read_chk, "", (int, void *, size_t, size_t)) \
	R(ssize_t, pread, "", (int, void *, size_t, off_t)) \
	R(ssize_t, __pread_chk, "", (int, void *, size_t, off_t, size_t)) \
	R(ssize_t, readv, "", (int, const struct iovec *, int)) \
	R(ssize_t, preadv, "", (int, const struct iovec *, int, off_t)) \
	R(ssize_t, preadv2, "", (int, const struct iovec *, int, off_t, int)) \
	R(ssize_t, write, "", (int, const void *, size_t)) \
	R(ssize_t, pwrite, "", (int, const void *, size_t, off_t)) \
	R(ssize_t, writev, "", (int, const struct iovec *, int)) \
	R(ssize_t, pwritev, "", (int, const struct iovec *, int, off_t)) \
	R(ssize_t, pwritev2, "", (int, const struct iovec *, int, off_t, int)) \
	R(ssize_t, recv, "", (int, void *, size_t, int)) \
	R(ssize_t, __recv_chk, "", (int, void *, size_t, size_t, int)) \
	R(ssize_t, recvfrom, "", (int, void *, size_t, int, struct sockaddr *, socklen_t *)) \
	R(ssize_t, __recvfrom_chk, "", (int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *)) \
	R(ssize_t, recvmsg, "", (int, struct msghdr *, int)) \
	R(int, recvmmsg, "", (int, struct mmsghdr *, unsigned, int, struct timespec *)) \
	R(ssize_t, send, "", (int, const void *, size_t, int)) \
	R(ssize_t, sendto, "", (int, const void *, size_t, int, const struct sockaddr *, socklen_t)) \
	R(ssize_t, sendmsg, "", (int, const struct msghdr *, int)) \
	R(int, sendmmsg, "", (int, struct mmsghdr *, unsigned, int)) \
	R(int, accept, "", (int, struct sockaddr *, socklen_t *)) \
	R(int, accept4, "", (int, struct sockaddr *, socklen_t *, int)) \
	R(int, connect, "", (int, const struct sockaddr *, socklen_t)) \
	R(int, shutdown, "", (int, int)) \
	R(int, close, "", (int)) \
	R(int, dup2, "", (int, int)) \
	R(int, dup3, "", (int, int, int)) \
	R(int, close_range, "", (unsigned, unsigned, int)) \
	R(void, closefrom, "", (int)) \
	R(int, eventfd_read, "", (int, uint64_t *)) \
	R(int, eventfd_write, "", (int, uint64_t)) \
	R(int, epoll_ctl, "", (int, int, int, struct epoll_event *)) \
	R(int, epoll_wait, "", (int, struct epoll_event *, int, int)) \
	R(int, epoll_pwait, "", (int, struct epoll_event *, int, int, const sigset_t *)) \
	R(int, epoll_pwait2, "", (int, struct epoll_event *, int, const struct timespec *, const sigset_t *)) \
	R(int, poll, "", (struct pollfd *, nfds_t, int)) \
	R(int, __poll_chk, "", (struct pollfd *, nfds_t, int, size_t)) \
	R(int, ppoll, "", (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *)) \
	R(int, __ppoll_chk, "", (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t)) \
	R(int, select, "", (int, fd_set *, fd_set *, fd_set *, struct timeval *)) \
	R(int, pselect, "", (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *)) \
	R(ssize_t, vmsplice, "", (int, const struct iovec *, size_t, unsigned)) \
	R(ssize_t, mq_receive, "", (mqd_t, char *, size_t, unsigned *)) \
	R(ssize_t, mq_timedreceive, "", (mqd_t, char *, size_t, unsigned *, const struct timespec *)) \
	R(int, mq_send, "", (mqd_t, const char *, size_t, unsigned)) \
	R(int, mq_timedsend, "", (mqd_t, const char *, size_t, unsigned, const struct timespec *)) \
	R(mqd_t, mq_open, "", (const char *, int, ...)) \
	R(mqd_t, __mq_open_2, "", (const char *, int)) \
	R(int, mq_close, "", (mqd_t)) \
	R(ssize_t, sendfile, "", (int, int, off_t *, size_t)) \
	R(ssize_t, splice, "", (int, off64_t *, int, off64_t *, size_t, unsigned)) \
	R(ssize_t, tee, "", (int, int, size_t, unsigned)) \
	R(ssize_t, copy_file_range, "", (int, off64_t *, int, off64_t *, size_t, unsigned)) \
	R(int, pipe, "", (int *)) \
	R(int, pipe2, "", (int *, int)) \
	R(int, socket, "", (int, int, int)) \
	R(int, socketpair, "", (int, int, int, int *)) \
	R(int, eventfd, "", (unsigned, int)) \
	R(int, timerfd_create, "", (int, int)) \
	R(int, timerfd_settime, "", (int, int, const struct itimerspec *, struct itimerspec *)) \
	R(int, flock, "", (int, int)) \
	R(void, flockfile, "", (FILE *)) \
	R(int, ftrylockfile, "", (FILE *)) \
	R(void, funlockfile, "", (FILE *)) \
	R(int, signalfd, "", (int, const sigset_t *, int)) \
	R(int, epoll_create, "", (int)) \
	R(int, epoll_create1, "", (int)) \
	R(int, dup, "", (int)) \
	R(int, open, "", (const char *, int, ...)) \
	R(int, open64, "", (const char *, int, ...)) \
	R(int, openat, "", (int, const char *, int, ...)) \
	R(int, openat64, "", (int, const char *, int, ...)) \
	R(int, creat, "", (const char *, mode_t)) \
	R(int, __open_2, "", (const char *, int)) \
	R(int, __open64_2, "", (const char *, int)) \
	R(int, __openat_2, "", (int, const char *, int)) \
	R(int, __openat64_2, "", (int, const char *, int)) \
	R(int, fcntl, "", (int, int, ...)) \
	R(int, fcntl64, "", (int, int, ...))
