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
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"

static char *format(const char *fmt, va_list ap)
{
    char *text = NULL;

    if (vasprintf(&text, fmt, ap) < 0) {
        die("out of memory for a line of the checkpoint report");
    }
    /* Names come from files: no line breaks, no terminal codes. */
    for (char *p = text; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }
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

int report_finish(struct report *r, struct model_report *to)
{
    int ret = r->n_problems > 0 ? -EBADMSG : 0;
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
