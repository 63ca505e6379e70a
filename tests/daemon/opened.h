/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What the tests of checkpoints share: a micro checkpoint, what opening it
 * says, and comparisons of that to the letter. */
#ifndef TESTS_DAEMON_OPENED_H
#define TESTS_DAEMON_OPENED_H

#include <errno.h>

#include "daemon/model/checkpoint.h"
#include "tests/ckpt.h"
#include "tests/test.h"

static inline struct synth micro(enum synth_dialect d)
{
    struct synth s;

    assert_true(synth_preset(&s, "micro"));
    s.dialect = d;
    return s;
}

static inline char *make(enum synth_dialect d)
{
    struct synth s = micro(d);

    return ckpt_synth(&s);
}

/* What opening a folder says. */
struct opened {
    int r;
    struct model_report rep;
    struct model_info info;
    struct shape shape;
};

static inline struct opened open_conf(const struct model_conf *c)
{
    struct opened o = {0};
    struct checkpoint *ck;

    o.r = checkpoint_open(c, &o.rep, &ck);
    if (o.r == 0) {
        checkpoint_info(ck, &o.info);
        o.shape = *checkpoint_shape(ck);
        checkpoint_close(ck);
    }
    return o;
}

static inline struct opened open_dir(const char *dir)
{
    struct model_conf c = {.path = dir, .drafts = -1};

    return open_conf(&c);
}

static inline void show(const struct opened *o)
{
    for (int i = 0; i < o->rep.n_problems; i++) {
        print_error("problem: %s\n", o->rep.problem[i]);
    }
    for (int i = 0; i < o->rep.n_notes; i++) {
        print_error("note: %s\n", o->rep.note[i]);
    }
}

/* Exactly these problems, in this order. Throws the folder away. */
#define assert_problems(dir, ...)                                 \
    assert_problems_(dir, (const char *const[]){__VA_ARGS__},     \
                     sizeof((const char *const[]){__VA_ARGS__}) / \
                         sizeof(const char *),                    \
                     __FILE__, __LINE__)

static inline void assert_problems_(char *dir, const char *const *text,
                                    size_t n, const char *file, int line)
{
    struct opened o = open_dir(dir);
    bool same = o.rep.n_problems == (int)n;

    for (size_t i = 0; same && i < n; i++) {
        same = strcmp(o.rep.problem[i], text[i]) == 0;
    }
    if (!same || o.r != -EBADMSG) {
        show(&o);
        for (size_t i = 0; i < n; i++) {
            print_error("expected: %s\n", text[i]);
        }
        _fail(file, line);
    }
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

/* No problem, and exactly these notes. */
#define assert_notes(dir, ...)                                             \
    assert_notes_(dir, (const char *const[]){__VA_ARGS__, NULL}, __FILE__, \
                  __LINE__)

static inline void assert_notes_(char *dir, const char *const *text,
                                 const char *file, int line)
{
    struct opened o = open_dir(dir);
    int n = 0;

    while (text[n] != NULL) {
        n++;
    }
    if (o.r != 0 || o.rep.n_notes != n) {
        show(&o);
        _fail(file, line);
    }
    for (int i = 0; i < n; i++) {
        assert_string_equal(o.rep.note[i], text[i]);
    }
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

static inline void assert_clean(char *dir, const char *dialect)
{
    struct opened o = open_dir(dir);

    if (o.r != 0 || o.rep.n_notes != 0) {
        show(&o);
    }
    assert_int_equal(o.r, 0);
    assert_int_equal(o.rep.n_notes, 0);
    assert_string_equal(o.info.dialect, dialect);
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

#endif
