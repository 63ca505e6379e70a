/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The table of named sessions, their conversations and their queues. Engine
 * thread only. Owns messages, token ids and the jobs that wait for a session;
 * pages are the index's.
 *
 * The invariant: a session changes in named_turn only, as a whole, when a turn
 * has ended; whatever else happens to a request leaves it as it was.
 */

#include "daemon/sched/named.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"
#include "daemon/text/transcript.h"

static bool is_owner(const struct named *n, uint32_t uid, const char *tenant)
{
    return n->uid == uid && strcmp(n->tenant, tenant) == 0;
}

struct named *named_find(const struct named_table *t, uint32_t uid,
                         const char *tenant, const char *name)
{
    struct named *n = t->first;

    while (n != NULL &&
           !(is_owner(n, uid, tenant) && strcmp(n->name, name) == 0)) {
        n = n->next;
    }
    return n;
}

struct named *named_by_writer(const struct named_table *t, uint64_t job)
{
    struct named *n = t->first;

    while (n != NULL && n->writer != job) {
        n = n->next;
    }
    return n;
}

int named_count(const struct named_table *t, uint32_t uid, const char *tenant)
{
    int count = 0;

    for (const struct named *n = t->first; n != NULL; n = n->next) {
        count += is_owner(n, uid, tenant);
    }
    return count;
}

struct named *named_make(struct named_table *t, uint32_t uid,
                         const char *tenant, const char *name)
{
    if (t->n >= t->limits.max ||
        named_count(t, uid, tenant) >= t->limits.max_per_owner) {
        return NULL;
    }
    return named_found(t, uid, tenant, name);
}

struct named *named_found(struct named_table *t, uint32_t uid,
                          const char *tenant, const char *name)
{
    struct named *n = xcalloc(1, sizeof(*n));

    n->uid = uid;
    (void)snprintf(n->tenant, sizeof(n->tenant), "%s", tenant);
    (void)snprintf(n->name, sizeof(n->name), "%s", name);
    n->wait_end = &n->wait;
    n->loaded = true;
    n->next = t->first;
    t->first = n;
    t->n++;
    return n;
}

bool named_has_room(const struct named_table *t, uint32_t uid,
                    const char *tenant, const struct named *but, uint64_t bytes,
                    uint64_t *ret_others)
{
    uint64_t sum = 0;

    for (const struct named *n = t->first; n != NULL; n = n->next) {
        if (n != but && is_owner(n, uid, tenant)) {
            sum += n->messages.n + n->tools.n;
        }
    }
    *ret_others = sum;
    return sum + bytes <= t->limits.text_per_owner;
}

void named_destroy(struct named_table *t, struct named *n)
{
    struct named **at = &t->first;

    BUG_ON(n->writer != 0 || n->wait != NULL || n->pin != NULL ||
           n->open_pin != NULL);
    while (*at != n) {
        at = &(*at)->next;
    }
    *at = n->next;
    t->n--;
    free(n->messages.p);
    free(n->tools.p);
    free(n->ids);
    free(n);
}

static int copy_text(struct job_text *to, const struct job_text *from)
{
    to->n = 0;
    to->p = NULL;
    if (from->p == NULL) {
        return 0;
    }
    to->p = malloc(from->n + 1);
    if (to->p == NULL) {
        return -ENOMEM;
    }
    memcpy(to->p, from->p, from->n);
    to->p[from->n] = '\0';
    to->n = from->n;
    return 0;
}

static int32_t *copy_ids(const int32_t *ids, int n)
{
    int32_t *p = malloc((size_t)n * sizeof(*p) + 1);

    if (p != NULL && n > 0) {
        memcpy(p, ids, (size_t)n * sizeof(*p));
    }
    return p;
}

int named_copy(struct named *to, const struct named *from)
{
    to->ids = copy_ids(from->ids, from->n_ids);
    if (to->ids == NULL || copy_text(&to->messages, &from->messages) < 0 ||
        copy_text(&to->tools, &from->tools) < 0) {
        return -ENOMEM;
    }
    to->n_ids = from->n_ids;
    to->n_committed = from->n_committed;
    to->n_open = from->n_open;
    to->salt = from->salt;
    to->used_us = from->used_us;
    to->changed = true;
    return 0;
}

void named_wait(struct named *n, struct job *j)
{
    j->next = NULL;
    *n->wait_end = j;
    n->wait_end = &j->next;
}

struct job *named_next(struct named *n)
{
    struct job *j = n->wait;

    if (j != NULL) {
        n->wait = j->next;
        j->next = NULL;
        if (n->wait == NULL) {
            n->wait_end = &n->wait;
        }
    }
    return j;
}

struct job *named_take(struct named_table *t, uint64_t job)
{
    for (struct named *n = t->first; n != NULL; n = n->next) {
        for (struct job **at = &n->wait; *at != NULL; at = &(*at)->next) {
            struct job *j = *at;

            if (j->id != job) {
                continue;
            }
            *at = j->next;
            j->next = NULL;
            if (*at == NULL) {
                n->wait_end = at;
            }
            return j;
        }
    }
    return NULL;
}

/* ---- what was said ------------------------------------------------------- */

void said_take(struct said *s, const struct event *e)
{
    switch (e->kind) {
    case EVENT_REASONING:
        str_add(&s->reasoning, e->text.p, e->text.n);
        break;
    case EVENT_CONTENT:
        str_add(&s->content, e->text.p, e->text.n);
        break;
    case EVENT_TOOL_CALL:
        if (e->call == EVENT_CALL_WHOLE) {
            transcript_call(e->call_id, e->call_name.p, e->call_name.n,
                            e->text.p, e->text.n, &s->calls);
        }
        break;
    }
}

void said_finish(struct said *s)
{
    str_finish(&s->reasoning);
    str_finish(&s->content);
    str_finish(&s->calls);
}

static int whole_talk(const struct job *j, const struct said *said,
                      struct str *out)
{
    struct str answer = {0};
    int r = said->reasoning.err | said->content.err | said->calls.err;

    transcript_answer(&said->reasoning, &said->content, &said->calls, &answer);
    transcript_join(j->messages.p, j->messages.n, answer.p, answer.n, out);
    str_putc(out, '\0');
    r |= answer.err | out->err;
    str_finish(&answer);
    return r != 0 ? -ENOMEM : 0;
}

int turn_make(struct turn *t, const struct job *j, const struct said *said,
              const int32_t *ids, int n_ids)
{
    struct str talk = {0};
    int32_t *copy = copy_ids(ids, n_ids);

    if (copy == NULL || (j->chat && whole_talk(j, said, &talk) < 0)) {
        str_finish(&talk);
        free(copy);
        return -ENOMEM;
    }
    *t = (struct turn){
        .messages = {talk.p, talk.n > 0 ? talk.n - 1 : 0},
        .ids = copy,
        .n_ids = n_ids,
    };
    return 0;
}

void turn_finish(struct turn *t)
{
    free(t->messages.p);
    free(t->ids);
    *t = (struct turn){0};
}

void named_turn(struct named *n, struct job *j, struct turn *t, int n_committed)
{
    free(n->messages.p);
    free(n->tools.p);
    free(n->ids);
    n->messages = t->messages;
    n->tools = j->tools;
    j->tools = (struct job_text){0};
    n->ids = t->ids;
    n->n_ids = t->n_ids;
    n->n_committed = n_committed;
    n->n_open = j->n_open;
    n->changed = true;
    *t = (struct turn){0};
}

int named_append(const struct named *n, struct job *j)
{
    struct str talk = {0};
    struct job_text tools = {0};

    if (j->tools.p == NULL && copy_text(&tools, &n->tools) < 0) {
        return -ENOMEM;
    }
    transcript_join(n->messages.p, n->messages.n, j->messages.p, j->messages.n,
                    &talk);
    str_putc(&talk, '\0');
    if (talk.err < 0) {
        str_finish(&talk);
        free(tools.p);
        return -ENOMEM;
    }
    free(j->messages.p);
    j->messages = (struct job_text){talk.p, talk.n - 1};
    if (j->tools.p == NULL) {
        j->tools = tools;
    }
    return 0;
}
