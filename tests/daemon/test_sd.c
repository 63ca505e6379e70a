/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * sd.c against a fake service manager: a datagram socket in $NOTIFY_SOCKET, and
 * sockets handed over by a fork that sets $LISTEN_PID as systemd does.
 */

#include "daemon/base/sd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tests/test.h"

static int notify_fd = -1;

static int setup(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char name[128];
    int n;

    (void)state;
    if (!sd_built()) {
        return 0;
    }
    n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "stepd-test-sd-%d",
                 (int)getpid());
    notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(notify_fd >= 0);
    assert_int_equal(bind(notify_fd, (struct sockaddr *)&a,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                                      1 + (size_t)n)),
                     0);
    snprintf(name, sizeof(name), "@%s", a.sun_path + 1);
    setenv("NOTIFY_SOCKET", name, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    if (notify_fd >= 0) {
        close(notify_fd);
        notify_fd = -1;
    }
    return 0;
}

/* The next message, "" when there is none. */
static const char *heard(void)
{
    static char text[1024];
    ssize_t n = recv(notify_fd, text, sizeof(text) - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void need_libsystemd(void)
{
    if (!sd_built()) {
        test_skip(NULL, "built without libsystemd");
    }
}

static void test_states_reach_the_manager(void **state)
{
    (void)state;
    need_libsystemd();
    assert_true(sd_say_status("loading %d of %d", 1, 2) > 0);
    assert_string_equal(heard(), "STATUS=loading 1 of 2");
    assert_true(sd_say_ready() > 0);
    assert_string_equal(heard(), "READY=1");
    assert_true(sd_say_watchdog() > 0);
    assert_string_equal(heard(), "WATCHDOG=1");
    assert_true(sd_say_reloading() > 0);
    assert_memory_equal(heard(), "RELOADING=1\nMONOTONIC_USEC=", 27);
    assert_true(sd_say_stopping(1500) > 0);
    assert_string_equal(heard(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000");
    assert_string_equal(heard(), "");
}

static void test_nobody_listens_is_no_error(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(sd_say_ready(), 0);
    assert_int_equal(sd_say_status("x"), 0);
}

/* A load that moves is extended at each beat; one that is stuck is not. */
static void fr_82_heartbeat_only_while_bytes_move(void **state)
{
    struct sd_beat b = {0};
    uint64_t progress = 0;

    (void)state;
    need_libsystemd();
    for (int i = 0; i < 120; i++) {
        progress += 1000;
        assert_int_equal(sd_beat(&b, progress), 1);
        assert_string_equal(heard(), "EXTEND_TIMEOUT_USEC=30000000");
    }
    for (int i = 0; i < 120; i++) {
        assert_int_equal(sd_beat(&b, progress), 0);
        assert_string_equal(heard(), "");
    }
    assert_int_equal(sd_beat(&b, progress + 1), 1);
    assert_string_equal(heard(), "EXTEND_TIMEOUT_USEC=30000000");
}

/* Runs sd_listen_fd in a child that was given these descriptors from 3 on; the
 * child's status: 0 all right, 1 a wrong answer, errno values otherwise. */
static int listen_child(int n_fds, const int *given)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        char text[16];
        int fd = -1, r;

        for (int i = 0; i < n_fds; i++) {
            if (dup2(given[i], 3 + i) < 0) {
                _exit(100);
            }
        }
        snprintf(text, sizeof(text), "%d", (int)getpid());
        setenv("LISTEN_PID", text, 1);
        snprintf(text, sizeof(text), "%d", n_fds);
        setenv("LISTEN_FDS", text, 1);
        r = sd_listen_fd(&fd);
        if (r == 0 && (fd != 3 || getenv("LISTEN_FDS") != NULL ||
                       (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0)) {
            _exit(101);
        }
        _exit(-r);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_one_listening_socket_is_taken(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fds[2], pipes[2];

    (void)state;
    need_libsystemd();
    for (int i = 0; i < 2; i++) {
        fds[i] = fcntl(socket(AF_UNIX, SOCK_STREAM, 0), F_DUPFD, 20);
        assert_true(fds[i] >= 20);
        /* autobind: an abstract name that the kernel picks */
        assert_int_equal(
            bind(fds[i], (struct sockaddr *)&a, sizeof(sa_family_t)), 0);
    }
    assert_int_equal(listen_child(1, fds), EINVAL); /* does not listen */
    assert_int_equal(listen(fds[0], 5), 0);
    assert_int_equal(listen(fds[1], 5), 0);
    assert_int_equal(listen_child(1, fds), 0);
    assert_int_equal(listen_child(2, fds), EINVAL);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(listen_child(1, pipes), EINVAL);
    close(pipes[0]);
    close(pipes[1]);
    close(fds[0]);
    close(fds[1]);
}

static void test_no_socket_was_handed_over(void **state)
{
    int fd = -7;

    (void)state;
    unsetenv("LISTEN_FDS");
    assert_int_equal(sd_listen_fd(&fd), -ENOENT);
    assert_int_equal(fd, -7);
}

static void test_watchdog_interval(void **state)
{
    char pid[16];

    (void)state;
    need_libsystemd();
    assert_int_equal(sd_watchdog_usec(), 0);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    setenv("WATCHDOG_USEC", "10000000", 1);
    assert_int_equal(sd_watchdog_usec(), 10000000);
    unsetenv("WATCHDOG_PID");
    unsetenv("WATCHDOG_USEC");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_states_reach_the_manager),
        CASE(test_nobody_listens_is_no_error),
        CASE(fr_82_heartbeat_only_while_bytes_move),
        CASE(test_one_listening_socket_is_taken),
        CASE(test_no_socket_was_handed_over),
        CASE(test_watchdog_interval),
    };

    return test_main(tests, NULL, NULL);
}
