/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What the tests of grammars share: forms to grammars, and whether a text fits.
 */
#ifndef TESTS_DAEMON_GRAMS_H
#define TESTS_DAEMON_GRAMS_H

#include <errno.h>
#include <jansson.h>

#include "daemon/text/format.h"
#include "daemon/text/jsongram.h"
#include "daemon/text/machine.h"
#include "tests/daemon/text.h"

enum fit { FIT_NOT, FIT_PREFIX, FIT_WHOLE };

/* The form of a response_format around a schema or another value; the caller
 * frees it. */
static inline char *grams_form(const char *type, const char *key,
                               const char *value)
{
    size_t n = strlen(type) + strlen(key) + strlen(value) + 64;
    char *p = malloc(n);

    assert_non_null(p);
    snprintf(p, n, "{\"type\":\"%s\",\"%s\":%s}", type, key, value);
    return p;
}

static inline struct gram *grams_compile(const char *form, bool reasoning)
{
    const struct format_args a = {
        .text = form, .n = strlen(form), .reasoning = reasoning};
    char text[256] = "";
    const struct why why = {text, sizeof(text)};
    struct gram *g = NULL;
    int r = format_compile(&g, &a, &why);

    if (r != 0 || g == NULL) {
        fail_msg("%.200s: %d, %s", form, r, text);
    }
    return g;
}

/* The refusal of a form: its error, and its words in why. */
static inline int grams_refusal(const char *form, char *why, size_t n_why)
{
    const struct format_args a = {.text = form, .n = strlen(form)};
    const struct why w = {why, n_why};
    struct gram *g = NULL;
    int r = format_compile(&g, &a, &w);

    gram_destroy(g);
    return r;
}

static inline enum fit grams_fit(const struct gram *g, const char *text,
                                 size_t n)
{
    struct machine m;
    enum fit fit = FIT_NOT;
    uint32_t s;

    assert_int_equal(machine_init(&m, g), 0);
    s = machine_bytes(&m, machine_start(&m), text, n);
    assert_int_equal(m.err, 0);
    if (s != MACHINE_DEAD) {
        fit = machine_accepts(&m, s) ? FIT_WHOLE : FIT_PREFIX;
    }
    machine_finish(&m);
    return fit;
}

#endif
