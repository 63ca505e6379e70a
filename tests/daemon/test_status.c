/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * status.c and metrics.c with a fake engine behind them: what is counted, how
 * it is written, and who is told.
 */

#include "tests/daemon/net_bench.h"

static struct bench bench;
static struct bench *const b = &bench;

static int setup(void **state)
{
    (void)state;
    bench_start(b, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bench_stop(b);
    return 0;
}

static void test_status_counts_connections_and_jobs(void **state)
{
    struct client c[2];
    struct wire_event *e;
    struct wire_value v;

    (void)state;
    b->engine->status.pages[0] = 100;
    b->engine->status.pages_free[0] = 99;
    client_open(b, &c[0]);
    client_open(b, &c[1]);
    for (int i = 0; i < 5; i++) {
        client_say(b, &c[0], GENERATE("4"));
        bench_run(b);
        if (i < 2) {
            fake_done(b->engine, i, i == 0 ? FINISH_STOP : FINISH_CANCELLED);
        } else if (i < 3) {
            fake_error(b->engine, i, "too_long", "");
        } else if (i < 4) {
            fake_plain_done(b->engine, i);
        }
        bench_run(b);
    }
    fake_accepted(b->engine, 4, 0, 12);
    bench_run(b);
    client_say(b, &c[1], "{\"op\":\"status\",\"id\":9}");
    e = client_event(b, &c[1]);
    assert_non_null(e);
#define IS(path, n)                           \
    assert_true(wire_event_get(e, path, &v)); \
    assert_int_equal(v.u, n)
    IS("connections.open", 2);
    IS("connections.total", 2);
    IS("pages.full.total", 100);
    IS("pages.full.free", 99);
    IS("jobs.0.job", 5);
    IS("jobs.0.uid", geteuid());
    IS("jobs.0.prompt_tokens", 12);
    IS("requests.total", 5);
    IS("requests.finished", 2);
    IS("requests.failed", 1);
    IS("requests.cancelled", 1);
    assert_true(wire_event_get(e, "memory.resident", &v));
    assert_true(v.u > 100000);
    assert_true(wire_event_get(e, "open_fds", &v));
    assert_true(v.u >= 6); /* four ends of pairs and the log's pipe at least */
    assert_true(wire_event_get(e, "uptime_ms", &v));
#undef IS
    wire_event_destroy(e);
    client_close(&c[0]);
    client_close(&c[1]);
}

/* The names below "9. METRICS" of the specification. */
static char *specification(void)
{
    FILE *f = fopen(TEST_SRCDIR "/client/wire.h", "re");
    static char text[1 << 17];
    char *from, *to;
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, sizeof(text) - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    from = strstr(text, "9. METRICS");
    assert_non_null(from);
    to = strstr(from, "*/");
    assert_non_null(to);
    *to = '\0';
    return from;
}

static bool is_documented(const char *name)
{
    size_t n = strlen(name);

    for (const char *p = specification(); (p = strstr(p, name)) != NULL;
         p += n) {
        if (strchr(" {,\n", p[n]) != NULL) {
            return true;
        }
    }
    print_error("not in client/wire.h, METRICS: %s\n", name);
    return false;
}

static int documented(void)
{
    int n = 0;

    for (const char *p = specification(); (p = strstr(p, "stepd_")) != NULL;
         p++) {
        n++;
    }
    return n;
}

/* A line's name belongs to the family above it. */
static bool is_of(const char *name, const char *family, bool is_histogram)
{
    size_t n = strlen(family);

    if (!is_histogram) {
        return strcmp(name, family) == 0;
    }
    return strncmp(name, family, n) == 0 &&
           (strcmp(name + n, "_bucket") == 0 || strcmp(name + n, "_sum") == 0 ||
            strcmp(name + n, "_count") == 0);
}

/* Every line of the metrics is a comment or NAME{LABELS} VALUE, and each name
 * has its HELP and TYPE before it. */
static void test_metrics_are_well_formed(void **state)
{
    struct client c;
    struct wire_event *e;
    struct wire_value v;
    char family[128] = "", *text, *line, *rest;
    bool is_histogram = false;
    int n = 0, n_families = 0;

    (void)state;
    for (int i = 0; i < 4; i++) {
        hist_add(&b->engine->status.times.queue, 0.02, 1);
        hist_add(&b->engine->status.times.queue, 1000, 1);
    }
    strcpy(b->server->model_name, "a \"quoted\\name\"");
    client_open(b, &c);
    client_say(b, &c, "{\"op\":\"ping\",\"id\":2,\"zzz\":1}");
    expect_like(b, &c, "bad_request");
    client_say(b, &c, "{\"op\":\"metrics\",\"id\":9}");
    e = client_event(b, &c);
    assert_string_equal(wire_event_name(e), "part");
    assert_true(wire_event_get(e, "text", &v));
    text = strndup(v.s.p, v.s.n);
    assert_non_null(text);
    wire_event_destroy(e);
    assert_non_null(strstr(text, "model=\"a \\\"quoted\\\\name\\\"\"} 1\n"));
    assert_non_null(
        strstr(text, "stepd_errors_total{code=\"bad_request\"} 1\n"));
    assert_non_null(strstr(text, "stepd_requests_total{op=\"metrics\"} 1\n"));
    assert_non_null(strstr(text, "stepd_state{state=\"ready\"} 1\n"));
    assert_non_null(strstr(text, "stepd_state{state=\"loading\"} 0\n"));
    assert_non_null(
        strstr(text, "stepd_queue_seconds_bucket{le=\"0.01\"} 0\n"));
    assert_non_null(
        strstr(text, "stepd_queue_seconds_bucket{le=\"0.025\"} 4\n"));
    assert_non_null(strstr(text, "stepd_queue_seconds_bucket{le=\"250\"} 4\n"));
    assert_non_null(strstr(text, "stepd_queue_seconds_bucket{le=\"+Inf\"} 8\n"
                                 "stepd_queue_seconds_sum 4000.080000\n"
                                 "stepd_queue_seconds_count 8\n"));
    rest = text;
    while ((line = strsep(&rest, "\n")) != NULL && *line != '\0') {
        char name[128];
        double value;

        if (sscanf(line, "# TYPE %127s", name) == 1) {
            strcpy(family, name);
            is_histogram = strstr(line, " histogram") != NULL;
            assert_true(is_documented(family));
            n_families++;
        } else if (line[0] != '#') {
            assert_int_equal(sscanf(line, "%127[a-z_]", name), 1);
            assert_true(is_of(name, family, is_histogram));
            assert_int_equal(sscanf(strrchr(line, ' '), " %lf", &value), 1);
            assert_true(value >= 0);
            n++;
        }
    }
    assert_true(n > 50);
    assert_int_equal(n_families, documented());
    free(text);
    expect(b, &c, "{\"id\": 9, \"event\": \"done\"}");
    client_close(&c);
}

/* Who is neither admin nor observer learns nothing of what others do, however
 * he asks; his own totals outlive his connections and cover his tenants. */
static void test_others_see_their_own_totals(void **state)
{
    static const char *const hidden[] = {"steps",  "drafts",   "pages",
                                         "memory", "times_ms", "open_fds"};
    struct peer user = {.uid = 4000,
                        .may_generate = true,
                        .may_observe = true,
                        .may_delegate = true};
    struct client owner, c;
    struct wire_event *e;
    struct wire_value v;
    char *text;

    (void)state;
    b->engine->status.prompt_tokens = 777;
    b->engine->status.queued = 9;
    client_open(b, &owner);
    client_say(b, &owner, GENERATE("5"));
    client_say(b, &owner, GENERATE("6"));
    open_as(b, &c, user);
    client_say(b, &c,
               "{\"op\":\"generate\",\"id\":1,\"prompt\":"
               "\"x\",\"tenant\":\"ann\"}");
    bench_run(b);
    fake_accepted(b->engine, 2, 0, 12);
    fake_done(b->engine, 2, FINISH_LENGTH);
    bench_run(b);
    client_close(&c);
    bench_run(b);
    open_as(b, &c, user);
    client_say(b, &c, GENERATE("1"));
    client_say(b, &c, GENERATE("2"));
    bench_run(b);
    fake_job(b->engine, 4)->started = true;
    client_say(b, &c, "{\"op\":\"status\",\"id\":8}");
    e = client_event(b, &c);
    assert_non_null(e);
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        assert_false(wire_event_get(e, hidden[i], &v));
    }
#define IS(path, n)                           \
    assert_true(wire_event_get(e, path, &v)); \
    assert_int_equal(v.u, n)
    IS("requests.total", 3);
    IS("requests.finished", 1);
    IS("queued", 1);
    IS("running", 1);
    IS("tokens.prompt", 7);
    IS("connections.open", 1);
    IS("jobs.0.uid", 4000);
    IS("jobs.1.uid", 4000);
    assert_false(wire_event_get(e, "jobs.2", &v));
#undef IS
    wire_event_destroy(e);
    client_say(b, &c, "{\"op\":\"metrics\",\"id\":8}");
    e = client_event(b, &c);
    assert_true(wire_event_get(e, "text", &v));
    text = strndup(v.s.p, v.s.n);
    assert_non_null(text);
    assert_non_null(strstr(text, "jobs_total{outcome=\"length\"} 1\n"));
    assert_non_null(strstr(text, "tokens_total{kind=\"prompt\"} 7\n"));
    assert_null(strstr(text, "steps"));
    assert_null(strstr(text, "connections"));
    free(text);
    wire_event_destroy(e);
    client_close(&c);
    client_close(&owner);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_status_counts_connections_and_jobs),
        CASE(test_metrics_are_well_formed),
        CASE(test_others_see_their_own_totals),
    };

    return test_main(tests, NULL, NULL);
}
