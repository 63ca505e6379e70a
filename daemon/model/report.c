/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The list of what is wrong with a checkpoint. Owns the texts until
 * report_finish hands them to the caller's struct model_report. One thread.
 *
 * A hundred thousand problems (a folder with the wrong model) must cost no more
 * memory than fifty: the list keeps the worst MODEL_MAX_PROBLEMS in order of
 * rank, then of arrival, and only counts the rest.
 */
#include "daemon/model/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"

/* Unicode 15: controls, format characters (bidirectional overrides, zero
 * widths, tags), line and paragraph separators. */
static const struct {
    uint32_t first, last;
} unseen[] = {
    {0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},
    {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},
    {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},
    {0x180e, 0x180e},   {0x200b, 0x200f},   {0x2028, 0x202e},
    {0x2060, 0x206f},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},
    {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},
    {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe007f},
};

static bool is_seen(uint32_t c)
{
    for (size_t i = 0; i < sizeof(unseen) / sizeof(unseen[0]); i++) {
        if (c >= unseen[i].first && c <= unseen[i].last) {
            return false;
        }
    }
    return true;
}

/* The character at p, which ends with a NUL, and its length; 0 where there is
 * none: a stray byte, an overlong form, a surrogate. */
static int decode(const char *p, uint32_t *ret)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char lead = (unsigned char)p[0];
    int n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t c = n == 1 ? lead : lead & (0x7fu >> n);

    if (lead >= 0xf8 || (lead >= 0x80 && lead < 0xc0)) {
        return 0;
    }
    for (int i = 1; i < n; i++) {
        if (((unsigned char)p[i] & 0xc0) != 0x80) {
            return 0;
        }
        c = c << 6 | ((unsigned char)p[i] & 0x3f);
    }
    *ret = c;
    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

/* What is longer than its own bytes: \xff for one, \u202e for two or three,
 * \U000e0001 for four. */
#define MOST_PER_BYTE 4

static char *visible(const char *text)
{
    size_t most = strlen(text) * MOST_PER_BYTE + 1;
    char *out = malloc(most), *at = out;

    if (out == NULL) {
        die("out of memory for a line of the checkpoint report");
    }
    while (*text != '\0') {
        uint32_t c = 0;
        int n = decode(text, &c);
        size_t left = most - (size_t)(at - out);

        if (n == 0 || (n == 1 && !is_seen(c))) {
            at += snprintf(at, left, "\\x%02x", (unsigned char)*text);
        } else if (!is_seen(c)) {
            at += snprintf(at, left, n < 4 ? "\\u%04" PRIx32 : "\\U%08" PRIx32,
                           c);
        } else {
            memcpy(at, text, (size_t)n);
            at += n;
        }
        text += n > 0 ? n : 1;
    }
    *at = '\0';
    return out;
}

static char *format(const char *fmt, va_list ap)
{
    char *raw = NULL, *text;

    if (vasprintf(&raw, fmt, ap) < 0) {
        die("out of memory for a line of the checkpoint report");
    }
    text = visible(raw);
    free(raw);
    return text;
}

void report_init(struct report *r)
{
    memset(r, 0, sizeof(*r));
}

void report_problem(struct report *r, enum report_rank rank, const char *fmt,
                    ...)
{
    va_list ap;
    int at = r->n_kept;

    r->n_problems++;
    while (at > 0 && r->kept[at - 1].rank > rank) {
        at--;
    }
    if (at == MODEL_MAX_PROBLEMS) {
        return;
    }
    if (r->n_kept == MODEL_MAX_PROBLEMS) {
        free(r->kept[--r->n_kept].text);
    }
    memmove(&r->kept[at + 1], &r->kept[at],
            (size_t)(r->n_kept - at) * sizeof(r->kept[0]));
    va_start(ap, fmt);
    r->kept[at].text = format(fmt, ap);
    va_end(ap);
    r->kept[at].rank = rank;
    r->n_kept++;
}

void report_no_memory(struct report *r, const char *file)
{
    report_problem(r, REPORT_FILE, "%s: out of memory", file);
    r->no_memory = true;
}

void report_note(struct report *r, const char *fmt, ...)
{
    va_list ap;
    char *text;

    va_start(ap, fmt);
    text = format(fmt, ap);
    va_end(ap);
    for (int i = 0; i < r->n_notes; i++) {
        if (strcmp(r->note[i], text) == 0) {
            free(text);
            return;
        }
    }
    if (r->n_notes == REPORT_MAX_NOTES) {
        free(text);
        return;
    }
    r->note[r->n_notes++] = text;
}

static void append(char ***list, int *n, char *text)
{
    char **grown = realloc(*list, (size_t)(*n + 1) * sizeof(**list));

    if (grown == NULL) {
        die("out of memory for the checkpoint report");
    }
    grown[(*n)++] = text;
    *list = grown;
}

int report_status(const struct report *r)
{
    return r->no_memory ? -ENOMEM : r->n_problems > 0 ? -EBADMSG : 0;
}

int report_finish(struct report *r, struct model_report *to)
{
    int ret = report_status(r);
    struct model_report none = {0};

    if (to == NULL) {
        to = &none;
    }
    for (int i = 0; i < r->n_kept; i++) {
        append(&to->problem, &to->n_problems, r->kept[i].text);
    }
    if (r->n_problems > r->n_kept) {
        char *rest = NULL;

        if (asprintf(&rest, "and %d more problems", r->n_problems - r->n_kept) <
            0) {
            die("out of memory for the checkpoint report");
        }
        append(&to->problem, &to->n_problems, rest);
    }
    for (int i = 0; i < r->n_notes; i++) {
        append(&to->note, &to->n_notes, r->note[i]);
    }
    model_report_finish(&none);
    report_init(r);
    return ret;
}

void model_report_finish(struct model_report *r)
{
    for (int i = 0; i < r->n_problems; i++) {
        free(r->problem[i]);
    }
    for (int i = 0; i < r->n_notes; i++) {
        free(r->note[i]);
    }
    free(r->problem);
    free(r->note);
    memset(r, 0, sizeof(*r));
}
