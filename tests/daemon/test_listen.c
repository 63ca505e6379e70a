/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * listen.c: what happens to the file at the socket's path, and accepting.
 */

#include "daemon/net/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "daemon/base/log.h"
#include "tests/test.h"

static char dir[64], path[96], lock_path[128], why[512];

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/stepd-listen.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/s.sock", dir);
    snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
    return 0;
}

static int teardown(void **state)
{
    char cmd[128];

    (void)state;
    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    return system(cmd);
}

static int bind_it(struct listener *l)
{
    why[0] = '\0';
    return listen_bind(l, path, 0660, (gid_t)-1, why, sizeof(why));
}

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(name, &st) == 0;
}

/* The number of names in dir. */
static int n_names(void)
{
    char cmd[128];
    int n;
    FILE *f;

    snprintf(cmd, sizeof(cmd), "ls -A %s | wc -l", dir);
    f = popen(cmd, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

static int connect_it(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(a.sun_path, path);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        int r = -errno;

        close(fd);
        return r;
    }
    return fd;
}

/* A socket file whose listener is gone, as after kill -9. */
static void leave_dead_socket(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(a.sun_path, path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    close(fd);
    assert_int_equal(connect_it(), -ECONNREFUSED);
}

static void test_bound_listening_and_gone_without_a_trace(void **state)
{
    struct listener l;
    int fd;

    (void)state;
    assert_int_equal(bind_it(&l), 0);
    assert_int_equal(n_names(), 2); /* socket and lock */
    fd = connect_it();
    assert_true(fd >= 0);
    assert_int_equal(fcntl(l.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(l.fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    listen_stop(&l);
    assert_false(is_there(path));
    assert_true(is_there(lock_path)); /* still not a second daemon */
    assert_int_equal(bind_it(&(struct listener){0}), -EADDRINUSE);
    listen_close(&l);
    listen_close(&l); /* twice is fine */
    assert_int_equal(n_names(), 0);
    close(fd);
}

static void fr_73_dead_socket_is_replaced(void **state)
{
    struct listener l;
    int fd;

    (void)state;
    leave_dead_socket();
    assert_int_equal(bind_it(&l), 0);
    fd = connect_it();
    assert_true(fd >= 0);
    close(fd);
    listen_close(&l);
    assert_int_equal(n_names(), 0);
}

static void fr_73_live_socket_is_left_alone(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct listener l;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), more;

    (void)state;
    /* Another program's, with a backlog that fills up: full is live, too. */
    strcpy(a.sun_path, path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(bind_it(&l), -EADDRINUSE);
    assert_non_null(strstr(why, "already running"));
    assert_non_null(strstr(why, path));
    more = connect_it();
    assert_int_equal(bind_it(&l), -EADDRINUSE);
    assert_non_null(strstr(why, "already running"));
    assert_true(is_there(path));
    assert_int_equal(n_names(), 1); /* no lock left either */
    close(more);
    close(fd);
}

static void fr_73_what_is_no_socket_is_left_alone(void **state)
{
    struct listener l;
    struct stat st;
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    (void)state;
    assert_int_equal(write(fd, "precious", 8), 8);
    close(fd);
    assert_int_equal(bind_it(&l), -EEXIST);
    assert_non_null(strstr(why, "is not a socket"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 8);
    assert_int_equal(unlink(path), 0);

    /* Nor is a link, wherever it points. */
    assert_int_equal(symlink("/nonexistent", path), 0);
    assert_int_equal(bind_it(&l), -EEXIST);
    assert_true(is_there(path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(bind_it(&l), -EEXIST);
    assert_true(is_there(path));
}

static void fr_73_errors_say_why(void **state)
{
    struct listener l;
    char long_path[200];

    (void)state;
    snprintf(path, sizeof(path), "%s/no/such/folder", dir);
    assert_int_equal(bind_it(&l), -ENOENT);
    assert_non_null(strstr(why, "No such file or directory"));
    assert_non_null(strstr(why, path));
    memset(long_path, 'x', sizeof(long_path));
    long_path[0] = '/';
    long_path[108] = '\0';
    assert_int_equal(
        listen_bind(&l, long_path, 0660, (gid_t)-1, why, sizeof(why)),
        -ENAMETOOLONG);
    assert_string_equal(why, "socket path of 108 bytes: 1 to 107 are possible");
    assert_int_equal(listen_bind(&l, "", 0660, (gid_t)-1, why, sizeof(why)),
                     -ENAMETOOLONG);
}

/* The longest path that the system knows works, whatever our temporary name
 * needs. */
static void test_longest_path_works(void **state)
{
    struct listener l;
    size_t n = strlen(dir);

    (void)state;
    memcpy(path, dir, n);
    path[n] = '/';
    memset(path + n + 1, 'x', sizeof(path) - n - 2);
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(bind_it(&l), 0);
    listen_close(&l);
    assert_int_equal(n_names(), 0);
}

static void fr_75_mode_does_not_follow_the_umask(void **state)
{
    struct listener l;
    struct stat st;
    mode_t before;

    (void)state;
    for (int i = 0; i < 2; i++) {
        before = umask(i == 0 ? 0 : 0777);
        assert_int_equal(bind_it(&l), 0);
        (void)umask(before);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0660);
        assert_int_equal(stat(lock_path, &st), 0);
        assert_int_equal(st.st_mode & 077, 0);
        listen_close(&l);
    }
}

static void fr_76_group_of_the_socket(void **state)
{
    struct listener l;
    struct stat st;

    (void)state;
    if (geteuid() != 0) {
        test_skip(NULL, "only root can give a file to any group");
    }
    assert_int_equal(listen_bind(&l, path, 0660, (gid_t)4321, why, sizeof(why)),
                     0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_gid, 4321);
    assert_int_equal(st.st_mode & 0777, 0660);
    listen_close(&l);
}

/* One starter of many: waits for the start (the end of go), tries, and tells
 * won. The winner stays until the end of done, and leaves his socket behind. */
static void starter(int go, int won, int done)
{
    struct listener l;
    char c = 'w';
    int r;

    (void)!read(go, &c, 1);
    r = bind_it(&l);
    if (r < 0) {
        _exit(r == -EADDRINUSE ? 0 : 2);
    }
    if (write(won, &c, 1) != 1) {
        _exit(3);
    }
    (void)!read(done, &c, 1);
    _exit(1);
}

/* Starters in n processes at once, over a dead socket: exactly one wins, all
 * others say that somebody is running, and the winner's socket works. */
static void fr_75_of_many_starters_one_wins(void **state)
{
    enum { N = 8, ROUNDS = 20 };

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int go[2], won[2], done[2], n_won = 0, fd, status;
        char c;

        leave_dead_socket();
        assert_int_equal(pipe(go) | pipe(won) | pipe(done), 0);
        for (int i = 0; i < N; i++) {
            pid_t pid = fork();

            assert_true(pid >= 0);
            if (pid == 0) {
                close(go[1]);
                close(won[0]);
                close(done[1]);
                starter(go[0], won[1], done[0]);
            }
        }
        close(won[1]);
        close(go[1]);
        assert_int_equal(read(won[0], &c, 1), 1);
        fd = connect_it();
        assert_true(fd >= 0);
        close(fd);
        for (int i = 0; i < N; i++) {
            if (i == N - 1) { /* all but the winner have ended */
                close(done[1]);
            }
            assert_true(wait(&status) > 0);
            assert_true(WIFEXITED(status));
            assert_true(WEXITSTATUS(status) < 2);
            n_won += WEXITSTATUS(status);
        }
        assert_int_equal(n_won, 1);
        close(go[0]);
        close(won[0]);
        close(done[0]);
        assert_int_equal(unlink(path), 0);
    }
}

/* Somebody else replaced our socket: it is not ours to remove. */
static void test_only_our_own_file_is_unlinked(void **state)
{
    struct listener l;

    (void)state;
    assert_int_equal(bind_it(&l), 0);
    assert_int_equal(unlink(path), 0);
    leave_dead_socket();
    listen_close(&l);
    assert_true(is_there(path));
}

static void test_inherited_socket_outlives_us(void **state)
{
    struct listener unit, l;
    int fd;

    (void)state;
    assert_int_equal(bind_it(&unit), 0); /* plays the service manager */
    fd = dup(unit.fd);
    assert_int_equal(listen_inherit(&l, fd), 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    listen_stop(&l);
    listen_close(&l);
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* our descriptor is closed */
    assert_true(is_there(path));
    fd = connect_it(); /* and the socket takes connections as before */
    assert_true(fd >= 0);
    close(fd);
    listen_close(&unit);
}

/* ---- accepting ---------------------------------------------------------- */

struct seen {
    int fd[64];
    int n;
};

static void on_conn(void *ctx, int fd)
{
    struct seen *s = ctx;

    s->fd[s->n++] = fd;
}

static void test_accepts_what_connects(void **state)
{
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct seen seen = {.n = 0};
    struct listener l;
    int fds[10];

    (void)state;
    assert_int_equal(bind_it(&l), 0);
    listen_start(&l, loop, on_conn, &seen);
    for (int i = 0; i < 10; i++) {
        fds[i] = connect_it();
        assert_true(fds[i] >= 0);
    }
    ev_run(loop, EVRUN_NOWAIT);
    assert_int_equal(seen.n, 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fcntl(seen.fd[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        assert_int_equal(fcntl(seen.fd[i], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
        close(seen.fd[i]);
        close(fds[i]);
    }
    listen_close(&l);
    ev_loop_destroy(loop);
}

/* Without a free descriptor accept fails for ever: the loop must not spin, and
 * must go on as soon as there is one. */
static void test_no_descriptors_left_pauses_and_recovers(void **state)
{
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct seen seen = {.n = 0};
    struct rlimit before, none;
    struct listener l;
    int fd, log[2];

    (void)state;
    assert_int_equal(pipe(log), 0);
    log_init(LOG_INFO);
    log_to(log[1], true);
    assert_int_equal(bind_it(&l), 0);
    listen_start(&l, loop, on_conn, &seen);
    fd = connect_it();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    ev_run(loop, EVRUN_NOWAIT);
    assert_int_equal(seen.n, 1);
    close(seen.fd[0]);
    close(fd);

    fd = connect_it();
    none = before;
    none.rlim_cur = 3; /* fewer than are open: none can be added */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 50; i++) {
        ev_run(loop, EVRUN_NOWAIT);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(l.n_failed, 1); /* not 50 */
    assert_int_equal(seen.n, 1);
    listen_retry(&l);
    ev_run(loop, EVRUN_NOWAIT);
    assert_int_equal(seen.n, 2);
    close(seen.fd[1]);
    close(fd);

    /* Or by itself, after a while. */
    fd = connect_it();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    ev_run(loop, EVRUN_NOWAIT);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    while (seen.n < 3) {
        ev_run(loop, EVRUN_ONCE);
    }
    close(seen.fd[2]);
    close(fd);
    listen_close(&l);
    ev_loop_destroy(loop);
    log_to(STDERR_FILENO, false);
    close(log[0]);
    close(log[1]);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_bound_listening_and_gone_without_a_trace),
        CASE(fr_73_dead_socket_is_replaced),
        CASE(fr_73_live_socket_is_left_alone),
        CASE(fr_73_what_is_no_socket_is_left_alone),
        CASE(fr_73_errors_say_why),
        CASE(test_longest_path_works),
        CASE(fr_75_mode_does_not_follow_the_umask),
        CASE(fr_76_group_of_the_socket),
        CASE(fr_75_of_many_starters_one_wins),
        CASE(test_only_our_own_file_is_unlinked),
        CASE(test_inherited_socket_outlives_us),
        CASE(test_accepts_what_connects),
        CASE(test_no_descriptors_left_pauses_and_recovers),
    };

    return test_main(tests, NULL, NULL);
}
