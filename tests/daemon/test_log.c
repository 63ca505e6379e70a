/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * log.c: what one line looks like, and the budget for lines that clients can
 * provoke.
 */

#include "daemon/base/log.h"

#include <fcntl.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/test.h"

static int fds[2];

static int setup(void **state)
{
    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
    log_init(LOG_INFO);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    log_to(STDERR_FILENO, false);
    close(fds[0]);
    close(fds[1]);
    return 0;
}

/* What was written since the last call. */
static const char *written(void)
{
    static char text[8192];
    ssize_t n = read(fds[0], text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void test_prefix_carries_the_priority(void **state)
{
    (void)state;
    log_to(fds[1], true);
    log_error("one %d", 1);
    log_warn("two");
    log_info("three");
    assert_string_equal(written(), "<3>one 1\n<4>two\n<6>three\n");
}

static void test_plain_lines_carry_time_and_word(void **state)
{
    const char *line;
    int y, mo, d, h, mi, s, ms, at = 0;

    (void)state;
    log_to(fds[1], false);
    log_warn("careful");
    line = written();
    assert_int_equal(sscanf(line, "%4d-%2d-%2d %2d:%2d:%2d.%3d %n", &y, &mo, &d,
                            &h, &mi, &s, &ms, &at),
                     7);
    assert_string_equal(line + at, "warning: careful\n");
}

static void test_level_decides(void **state)
{
    (void)state;
    log_to(fds[1], true);
    log_debug("not this");
    assert_false(log_enabled(LOG_DEBUG));
    log_set_level(LOG_DEBUG);
    log_debug("this");
    log_set_level(LOG_ERROR);
    log_warn("nor this");
    assert_string_equal(written(), "<7>this\n");
}

static void test_one_line_stays_one_line(void **state)
{
    (void)state;
    log_to(fds[1], true);
    log_info("a\nb\r\x1b[31m\x7f"
             "c");
    assert_string_equal(written(), "<6>a?b??[31m?c\n");
}

static void test_long_line_is_cut_and_says_so(void **state)
{
    char text[3000];
    const char *line;

    (void)state;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    log_to(fds[1], true);
    log_info("%s", text);
    line = written();
    assert_int_equal(strlen(line), LOG_MAX_LINE);
    assert_string_equal(line + LOG_MAX_LINE - 5, "x...\n");
}

/* A journal of our own: a datagram socket; stopped, it takes nothing more. */
static void test_events_carry_fields_and_never_wait(void **state)
{
    struct log_about about = LOG_ABOUT(LOG_ID_REQUEST);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char text[512];
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    ssize_t n;

    (void)state;
    snprintf(a.sun_path, sizeof(a.sun_path), "/tmp/stepd-test-log-%d",
             (int)getpid());
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    log_journal_to(a.sun_path);
    about.uid = 7;
    about.tokens = 12;
    log_event(LOG_INFO, &about, "a\nb %d", 1);
    n = recv(fd, text, sizeof(text) - 1, 0);
    assert_true(n > 0);
    text[n] = '\0';
    assert_string_equal(text,
                        "SYSLOG_IDENTIFIER=stepd\nPRIORITY=6\n"
                        "MESSAGE_ID=" LOG_ID_REQUEST "\nUID=7\nTOKENS=12\n"
                        "MESSAGE=a?b 1\n");
    /* Nobody reads: lines are lost and told, the caller goes on. */
    for (int i = 0; i < 100000; i++) {
        log_event(LOG_INFO, &about, "line");
    }
    log_to(fds[1], true);
    log_info("after");
    assert_non_null(strstr(written(), "log lines were lost\n"));
    log_journal_to("/nowhere");
    log_event(LOG_WARN, &about, "plain");
    assert_string_equal(written(), "<4>plain\n");
    (void)unlink(a.sun_path);
    close(fd);
}

static void test_limit_lets_a_burst_through_and_counts_the_rest(void **state)
{
    struct log_limit l = LOG_LIMIT(3, 1000);
    uint64_t dropped = 99;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_true(log_limit_ok(&l, 5000 + i, &dropped));
        assert_int_equal(dropped, 0);
    }
    for (int i = 0; i < 7; i++) {
        assert_false(log_limit_ok(&l, 5500, &dropped));
    }
    assert_false(log_limit_ok(&l, 5999, &dropped));
    assert_true(log_limit_ok(&l, 6000, &dropped));
    assert_int_equal(dropped, 8);
    assert_true(log_limit_ok(&l, 6001, &dropped));
    assert_int_equal(dropped, 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_prefix_carries_the_priority),
        CASE(test_plain_lines_carry_time_and_word),
        CASE(test_level_decides),
        CASE(test_one_line_stays_one_line),
        CASE(test_long_line_is_cut_and_says_so),
        CASE(test_events_carry_fields_and_never_wait),
        CASE(test_limit_lets_a_burst_through_and_counts_the_rest),
    };

    return test_main(tests, NULL, NULL);
}
