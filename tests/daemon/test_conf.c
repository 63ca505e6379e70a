/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * conf.c and conf_value.c: files on disk in, one struct out or every problem
 * with its place. Also that etc/stepd.conf says what the table says.
 */

#include "daemon/base/conf.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "tests/test.h"

static char dir[64], main_file[128];

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/stepd-conf.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(main_file, sizeof(main_file), "%s/a.conf", dir);
    return 0;
}

static int teardown(void **state)
{
    char cmd[128];

    (void)state;
    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    return system(cmd);
}

static void write_bytes(const char *name, const void *bytes, size_t n)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_file(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

static int load(struct conf *c, struct conf_report *rep, int n_set,
                const char *const *set)
{
    struct conf_source src = {main_file, set, n_set};

    return conf_load(&src, rep, c);
}

/* Loads what is on disk; it must be right. */
static void load_good(struct conf *c)
{
    struct conf_report rep;
    int r = load(c, &rep, 0, NULL);

    for (int i = 0; i < rep.n; i++) {
        print_error("%s\n", rep.line[i]);
    }
    assert_int_equal(r, 0);
    assert_int_equal(rep.n, 0);
}

/* Loads `text`, which must be refused with n lines, one of which holds want. */
static void refused(const char *text, int n, const char *want)
{
    struct conf c;
    struct conf_report rep;
    bool found = false;

    memset(&c, 0x55, sizeof(c));
    write_file("a.conf", text);
    assert_int_equal(load(&c, &rep, 0, NULL), -EINVAL);
    for (int i = 0; i < rep.n; i++) {
        found |= strstr(rep.line[i], want) != NULL;
    }
    if (!found || rep.n != n) {
        print_error("wanted %d lines with: %s\n", n, want);
        for (int i = 0; i < rep.n; i++) {
            print_error("  got: %s\n", rep.line[i]);
        }
        fail();
    }
    conf_report_finish(&rep);
    for (size_t i = 0; i < sizeof(c); i++) {
        assert_int_equal(((unsigned char *)&c)[i], 0x55);
    }
}

static void test_empty_file_gives_defaults(void **state)
{
    struct conf c;

    (void)state;
    write_file("a.conf", "");
    load_good(&c);
    assert_string_equal(c.model, "");
    assert_string_equal(c.backend, "auto");
    assert_string_equal(c.isa, "auto");
    assert_int_equal(c.weights, CONF_WEIGHTS_AUTO);
    assert_int_equal(c.drafts, CONF_DRAFTS_AUTO);
    assert_int_equal(c.max_batched_tokens, 2048);
    assert_int_equal(c.step_target_ms, 150);
    assert_int_equal(c.socket_mode, 0660);
    assert_string_equal(c.socket, "/run/stepd/stepd.sock");
    assert_int_equal(c.max_unfinished_per_uid, 64 << 20);
    assert_int_equal(c.frame_timeout, 30000);
    assert_int_equal(c.drain_timeout, 60000);
    assert_int_equal(c.log_level, LOG_INFO);
    assert_int_equal(c.allow_users.n, 0);
    assert_false(c.log_text);
    conf_finish(&c);
}

static void test_every_type_is_read(void **state)
{
    struct conf c;

    (void)state;
    write_file("a.conf", "\xef\xbb\xbf# a comment after a mark\n"
                         "model = /models/step \n"
                         "  threads=3\r\n" /* indented: not a continuation */
                         "weights = copy\n"
                         "; another comment\n"
                         "memory_utilization: 0.5\n"
                         "kv_memory = 3G ; with a comment\n"
                         "drafts = require\n"
                         "frame_timeout = 1500ms\n"
                         "slow_client_timeout = 2min\n"
                         "drain_timeout = 7\n"
                         "socket_mode = 0600\n"
                         "allow_users = root, 1234 4294967294\n"
                         "admin_groups = 0\n"
                         "log_level = debug\n"
                         "log_text = yes");
    load_good(&c);
    assert_string_equal(c.model, "/models/step");
    assert_int_equal(c.threads, 3);
    assert_int_equal(c.weights, CONF_WEIGHTS_COPY);
    assert_true(c.memory_utilization == 0.5);
    assert_int_equal(c.kv_memory, 3ULL << 30);
    assert_int_equal(c.drafts, CONF_DRAFTS_REQUIRE);
    assert_int_equal(c.frame_timeout, 1500);
    assert_int_equal(c.slow_client_timeout, 120000);
    assert_int_equal(c.drain_timeout, 7000);
    assert_int_equal(c.socket_mode, 0600);
    assert_int_equal(c.allow_users.n, 3);
    assert_int_equal(c.allow_users.id[0], 0);
    assert_int_equal(c.allow_users.id[1], 1234);
    assert_int_equal(c.allow_users.id[2], 4294967294U);
    assert_int_equal(c.admin_groups.n, 1);
    assert_int_equal(c.log_level, LOG_DEBUG);
    assert_true(c.log_text);
    conf_finish(&c);
}

static void test_folder_and_set_win_in_order(void **state)
{
    const char *set[] = {"max_seqs=5", "max_seqs=6"};
    struct conf c;
    struct conf_report rep;
    char path[256];

    (void)state;
    write_file("a.conf", "max_seqs = 1\nthreads = 1\nmax_queue = 1\n"
                         "max_in_flight = 1\n");
    snprintf(path, sizeof(path), "%s.d", main_file);
    assert_int_equal(mkdir(path, 0700), 0);
    write_file("a.conf.d/10.conf",
               "max_seqs = 2\nthreads = 2\nmax_queue = 2\n");
    write_file("a.conf.d/20.conf", "max_seqs = 3\nthreads = 3\n");
    write_file("a.conf.d/30.conf.off", "max_seqs = 4\nthreads = 4\n");
    write_file("a.conf.d/.40.conf", "max_seqs = 4\nthreads = 4\n");
    assert_int_equal(load(&c, &rep, 2, set), 0);
    assert_int_equal(c.max_seqs, 6);
    assert_int_equal(c.threads, 3);
    assert_int_equal(c.max_queue, 2);
    assert_int_equal(c.max_in_flight, 1);
    conf_finish(&c);

    /* A problem in the folder names the file there. */
    write_file("a.conf.d/20.conf", "\nthreads = many\n");
    assert_int_equal(load(&c, &rep, 0, NULL), -EINVAL);
    assert_int_equal(rep.n, 1);
    assert_non_null(strstr(rep.line[0], "a.conf.d/20.conf:2: threads"));
    conf_report_finish(&rep);
}

static void test_unknown_key_names_place_and_keys(void **state)
{
    (void)state;
    refused("\n\nmodle = x\n", 2, "a.conf:3: unknown key 'modle'");
    refused("modle = x\n", 2, "the keys are: model, served_model_name");
}

static void test_bad_values_name_what_is_allowed(void **state)
{
    (void)state;
    refused("backend = gpu\n", 1,
            "a.conf:1: backend = gpu: expected one of auto, cpu, cuda");
    refused("max_in_flight = 65\n", 1, "a whole number, 1 to 64 requests");
    refused("max_in_flight = 0\n", 1, "1 to 64");
    refused("max_in_flight = 1x\n", 1, "1 to 64");
    refused("max_in_flight = 0x10\n", 1, "1 to 64");
    refused("max_in_flight =\n", 1, "1 to 64");
    refused("max_in_flight = 99999999999999999999\n", 1, "1 to 64");
    refused("kv_memory = 1Q\n", 1, "suffixes K, M, G, T");
    refused("kv_memory = -1\n", 1, "suffixes K, M, G, T");
    refused("kv_memory = 99999999999T\n", 1, "suffixes K, M, G, T");
    refused("max_output_soft = 1K\n", 1, "a size, 4K to 1G");
    refused("frame_timeout = 2d\n", 1, "suffixes ms, s, min, h");
    refused("frame_timeout = 1ms\n", 1, "a time, 10ms to 3600s");
    refused("memory_utilization = nan\n", 1, "a number, 0 to 0.99");
    refused("memory_utilization = 1.5\n", 1, "0 to 0.99");
    refused("memory_utilization = 0.5.1\n", 1, "0 to 0.99");
    refused("socket_mode = 0888\n", 1, "an octal mode, 0 to 777");
    refused("socket_mode = 1777\n", 1, "an octal mode, 0 to 777");
    refused("log_text = true\n", 1, "yes or no");
    refused("drafts = 4\n", 1, "require, auto, 0, 1, 2, 3");
    refused("allow_users = root, no-such-user-here\n", 1,
            "no user 'no-such-user-here' on this host");
    refused("allow_groups = no-such-group-here\n", 1,
            "no group 'no-such-group-here' on this host");
    refused("allow_users = 4294967295\n", 1, "4294967295");
    refused("model = a\tb\n", 1, "control character");
}

static void test_all_problems_at_once(void **state)
{
    (void)state;
    refused("threads = x\n"
            "nonsense\n"
            "[section]\n"
            "what = 1\n"
            "threads = 2\n"
            "max_seqs = 3\n"
            "max_seqs = 4\n",
            7, "a.conf:7: max_seqs is set a second time; first in line 6");
    refused("threads = x\nnonsense\n", 2,
            "a.conf:2: 'nonsense' is not KEY = VALUE");
    refused("[section]\n", 1, "a.conf:1: sections are not used here");
    refused("max_output_soft = 2M\n", 1,
            "max_output_soft must not be above max_output_hard");
    refused("prefill_chunk = 4000\n", 1, "prefill_chunk must not be above");
    refused("max_connections = 10\n", 1, "max_connections_per_uid must not");
}

static void test_problems_are_capped(void **state)
{
    char text[4096] = "";

    (void)state;
    for (int i = 0; i < 300; i++) {
        strcat(text, "a = 1\n");
    }
    refused(text, 100, "a.conf:100: unknown key 'a'");
}

static void test_long_line_is_refused_not_cut(void **state)
{
    char text[600];
    struct conf c;

    (void)state;
    /* 197 bytes are a line that inih keeps whole ... */
    memset(text, 'a', sizeof(text));
    memcpy(text, "model = ", 8);
    strcpy(text + 197, "\nthreads = 2\n");
    write_file("a.conf", text);
    load_good(&c);
    assert_int_equal(strlen(c.model), 197 - 8);
    assert_int_equal(c.threads, 2);
    conf_finish(&c);
    /* ... one more is not. */
    memset(text, 'a', sizeof(text));
    memcpy(text, "model = ", 8);
    strcpy(text + 198, "\nthreads = x\n");
    refused(text, 2, "a.conf:1: a line is longer than 197 bytes");
    refused(text, 2, "a.conf:2: threads = x");
}

static void test_nul_and_size_are_refused(void **state)
{
    static char big[(1 << 20) + 2];
    struct conf c;
    struct conf_report rep;

    (void)state;
    write_bytes("a.conf", "model = a\0b\n", 12);
    assert_int_equal(load(&c, &rep, 0, NULL), -EINVAL);
    assert_non_null(strstr(rep.line[0], "a.conf:1: a line holds a NUL byte"));
    conf_report_finish(&rep);

    memset(big, '#', sizeof(big));
    for (size_t i = 99; i < sizeof(big); i += 100) {
        big[i] = '\n';
    }
    big[sizeof(big) - 1] = '\n';
    write_bytes("a.conf", big, sizeof(big));
    assert_int_equal(load(&c, &rep, 0, NULL), -EINVAL);
    assert_non_null(strstr(rep.line[0], "longer than 1048576 bytes"));
    conf_report_finish(&rep);
}

static void test_set_errors_name_the_option(void **state)
{
    const char *set[] = {"threads", "thread=1", "threads=-1", "=x"};
    struct conf c;
    struct conf_report rep;

    (void)state;
    write_file("a.conf", "");
    assert_int_equal(load(&c, &rep, 4, set), -EINVAL);
    assert_int_equal(rep.n, 5);
    assert_string_equal(rep.line[0], "--set: 'threads' is not KEY=VALUE");
    assert_string_equal(rep.line[1], "--set: unknown key 'thread'");
    assert_non_null(strstr(rep.line[2], "--set: threads = -1: expected a "));
    assert_string_equal(rep.line[3], "--set: unknown key ''");
    conf_report_finish(&rep);
}

static void test_named_file_must_exist(void **state)
{
    struct conf c;
    struct conf_report rep;
    struct conf_source src = {"/nonexistent/stepd.conf", NULL, 0};

    (void)state;
    assert_int_equal(conf_load(&src, &rep, &c), -EINVAL);
    assert_int_equal(rep.n, 1);
    assert_string_equal(rep.line[0], "/nonexistent/stepd.conf: "
                                     "No such file or directory");
    conf_report_finish(&rep);
    src.file = dir; /* a folder can be opened but not read */
    assert_int_equal(conf_load(&src, &rep, &c), -EINVAL);
    assert_non_null(strstr(rep.line[0], "Is a directory"));
    conf_report_finish(&rep);
}

/* ---- etc/stepd.conf against the table ----------------------------------- */

/* The comment block that stands right above a line, joined to one line. */
static void comment_above(char lines[][512], int at, char *ret, size_t n)
{
    int first = at;

    while (first > 0 && strncmp(lines[first - 1], "# ", 2) == 0) {
        first--;
    }
    ret[0] = '\0';
    for (int i = first; i < at; i++) {
        size_t len = strlen(ret);

        snprintf(ret + len, n - len, "%s%s", i > first ? " " : "",
                 lines[i] + 2);
    }
}

static void test_etc_stepd_conf_is_the_table(void **state)
{
    static char lines[1000][512];
    const struct conf_key *keys;
    char want[256], comment[4096];
    int n_keys, n_lines = 0, n_found = 0, at = -1;
    FILE *f = fopen(TEST_SRCDIR "/etc/stepd.conf", "r");

    (void)state;
    assert_non_null(f);
    while (n_lines < 1000 && fgets(lines[n_lines], 512, f) != NULL) {
        lines[n_lines][strcspn(lines[n_lines], "\n")] = '\0';
        n_found += lines[n_lines][0] == '#' && lines[n_lines][1] != ' ' &&
                   lines[n_lines][1] != '\0';
        n_lines++;
    }
    fclose(f);
    keys = conf_keys(&n_keys);
    assert_int_equal(n_found, n_keys);
    for (int i = 0; i < n_keys; i++) {
        int before = at;

        snprintf(want, sizeof(want), "#%s =%s%s", keys[i].name,
                 keys[i].def[0] != '\0' ? " " : "", keys[i].def);
        for (at = before + 1; at < n_lines; at++) {
            if (strcmp(lines[at], want) == 0) {
                break;
            }
        }
        if (at == n_lines) {
            fail_msg("etc/stepd.conf lacks, or has out of order: %s", want);
        }
        comment_above(lines, at, comment, sizeof(comment));
        if (strncmp(comment, keys[i].doc, strlen(keys[i].doc)) != 0) {
            fail_msg("the comment of %s should begin with '%s', not '%s'",
                     keys[i].name, keys[i].doc, comment);
        }
        if ((strstr(comment, "(live)") != NULL) != keys[i].live) {
            fail_msg("%s: (live) stands where a reload takes it, only there",
                     keys[i].name);
        }
        for (const char *const *w = keys[i].choices; w != NULL && *w != NULL;
             w++) {
            /* the emulated one is a word of builds for tests alone */
            if (strcmp(*w, "cuda-emulated") != 0 &&
                strstr(comment, *w) == NULL) {
                fail_msg("the comment of %s leaves out '%s'", keys[i].name, *w);
            }
        }
    }
}

static void test_reload_takes_what_is_live(void **state)
{
    const char *set[] = {"max_queue=7"};
    struct conf_source src = {main_file, set, 1};
    struct conf_changes ch;
    struct conf_report rep;
    struct conf c;

    (void)state;
    write_file("a.conf", "model = /m\nallow_users = 1, 2\n");
    assert_int_equal(conf_load(&src, &rep, &c), 0);
    write_file("a.conf", "model = /m\nallow_users = 1 2\n");
    assert_int_equal(conf_reload(&src, &rep, &c, &ch), 0);
    assert_int_equal(ch.n, 0);
    write_file("a.conf", "model = /m\nallow_users = 3\nlog_level = debug\n"
                         "served_model_name = x\n");
    assert_int_equal(conf_reload(&src, &rep, &c, &ch), 0);
    assert_int_equal(ch.n, 3);
    assert_string_equal(ch.key[0], "served_model_name");
    assert_string_equal(c.served_model_name, "x");
    assert_int_equal(c.allow_users.n, 1);
    assert_int_equal(c.allow_users.id[0], 3);
    assert_int_equal(c.log_level, LOG_DEBUG);
    assert_int_equal(c.max_queue, 7);
    conf_finish(&c);
}

static void test_reload_refuses_the_rest_with_its_place(void **state)
{
    struct conf_source src = {main_file, NULL, 0};
    struct conf_changes ch;
    struct conf_report rep;
    char want[256];
    struct conf c;

    (void)state;
    write_file("a.conf", "model = /m\nmax_queue = 9\n");
    assert_int_equal(conf_load(&src, &rep, &c), 0);
    /* A file that is wrong: as at a start. */
    write_file("a.conf", "model = /m\nlog_level = debug\nmax_queue = x\n");
    assert_int_equal(conf_reload(&src, &rep, &c, &ch), -EINVAL);
    conf_report_finish(&rep);
    /* Two that take a restart, one of them by not being there any more. */
    write_file("a.conf", "log_level = debug\n\nmodel = /other\n");
    assert_int_equal(conf_reload(&src, &rep, &c, &ch), -EPERM);
    assert_int_equal(rep.n, 2);
    snprintf(want, sizeof(want), "%s:3: model cannot change", main_file);
    assert_memory_equal(rep.line[0], want, strlen(want));
    assert_memory_equal(rep.line[1], "max_queue cannot change", 23);
    conf_report_finish(&rep);
    assert_string_equal(c.model, "/m");
    assert_int_equal(c.max_queue, 9);
    assert_int_equal(c.log_level, LOG_INFO);
    conf_finish(&c);
}

static void test_etc_stepd_conf_loads(void **state)
{
    struct conf_source src = {TEST_SRCDIR "/etc/stepd.conf", NULL, 0};
    struct conf_report rep;
    struct conf c;

    (void)state;
    assert_int_equal(conf_load(&src, &rep, &c), 0);
    conf_finish(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_empty_file_gives_defaults, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_every_type_is_read, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_folder_and_set_win_in_order, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_unknown_key_names_place_and_keys,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_values_name_what_is_allowed,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_problems_at_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_problems_are_capped, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_long_line_is_refused_not_cut,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_nul_and_size_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_set_errors_name_the_option, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_named_file_must_exist, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_reload_takes_what_is_live, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_reload_refuses_the_rest_with_its_place, setup, teardown),
        cmocka_unit_test(test_etc_stepd_conf_is_the_table),
        cmocka_unit_test(test_etc_stepd_conf_loads),
    };

    return test_main(tests, NULL, NULL);
}
