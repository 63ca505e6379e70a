/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A table of turns by id and a list of them by use, under one lock. A turn is
 * one block of memory, so that it is counted and freed as one; turns_find keeps
 * the lock until turns_release, because the turn must not go meanwhile, and
 * what is done in between is a copy.
 *
 * The invariant: bytes is what the turns in the list take, never above
 * TURNS_MAX_BYTES, and of one owner never above TURNS_OWNER_BYTES.
 */
#include "daemon/sched/turns.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"
#include "daemon/text/parse.h"

#define N_BUCKETS 1024

struct turn {
    struct turn *next_bucket;
    struct turn *older, *newer; /* by use */
    uint32_t uid;
    char tenant[JOB_MAX_TENANT + 1];
    size_t bytes;
    struct chat_turn chat; /* its pointers lead into data */
    struct chat_turn_call *call;
    char data[];
};

struct turns {
    pthread_mutex_t lock;
    struct turn *bucket[N_BUCKETS];
    struct turn *oldest, *newest;
    size_t bytes;
};

/* ---- drafts ------------------------------------------------------------ */

void turn_draft_call(struct turn_draft *d, const char *id, const char *name,
                     size_t n_name, const char *arguments, size_t n_arguments)
{
    struct turn_call *c =
        realloc(d->call, ((size_t)d->n_calls + 1) * sizeof(*c));

    if (c == NULL) {
        d->err = -ENOMEM;
        return;
    }
    d->call = c;
    c += d->n_calls++;
    *c = (struct turn_call){.id = d->calls.n, .n_id = strlen(id)};
    str_puts(&d->calls, id);
    c->name = d->calls.n;
    c->n_name = n_name;
    str_add(&d->calls, name, n_name);
    c->arguments = d->calls.n;
    c->n_arguments = n_arguments;
    str_add(&d->calls, arguments, n_arguments);
}

void turn_draft_finish(struct turn_draft *d)
{
    str_finish(&d->reasoning);
    str_finish(&d->content);
    str_finish(&d->ids);
    str_finish(&d->calls);
    free(d->call);
    memset(d, 0, sizeof(*d));
}

/* ---- the table --------------------------------------------------------- */

int turns_create(struct turns **ret)
{
    struct turns *t = xcalloc(1, sizeof(*t));
    int r = -pthread_mutex_init(&t->lock, NULL);

    if (r < 0) {
        free(t);
        return r;
    }
    *ret = t;
    return 0;
}

static struct turn **bucket_of(struct turns *t, const char *id, size_t n)
{
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)id[i]) * 16777619u;
    }
    return &t->bucket[h % N_BUCKETS];
}

static void unlink_use(struct turns *t, struct turn *x)
{
    *(x->older != NULL ? &x->older->newer : &t->oldest) = x->newer;
    *(x->newer != NULL ? &x->newer->older : &t->newest) = x->older;
}

static void link_newest(struct turns *t, struct turn *x)
{
    x->older = t->newest;
    x->newer = NULL;
    *(t->newest != NULL ? &t->newest->newer : &t->oldest) = x;
    t->newest = x;
}

static void forget(struct turns *t, struct turn *x)
{
    struct turn **p = bucket_of(t, x->chat.call[0].id, x->chat.call[0].n_id);

    while (*p != x) {
        p = &(*p)->next_bucket;
    }
    *p = x->next_bucket;
    unlink_use(t, x);
    t->bytes -= x->bytes;
    free(x);
}

void turns_destroy(struct turns *t)
{
    if (t == NULL) {
        return;
    }
    while (t->oldest != NULL) {
        forget(t, t->oldest);
    }
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

static bool is_of(const struct turn *x, uint32_t uid, const char *tenant)
{
    return x->uid == uid && strcmp(x->tenant, tenant) == 0;
}

static struct turn *look(struct turns *t, uint32_t uid, const char *tenant,
                         const char *id, size_t n)
{
    struct turn *x = *bucket_of(t, id, n);

    while (x != NULL && !(is_of(x, uid, tenant) && x->chat.call[0].n_id == n &&
                          memcmp(x->chat.call[0].id, id, n) == 0)) {
        x = x->next_bucket;
    }
    return x;
}

/* ---- adding ------------------------------------------------------------ */

static const char *put(char **at, const void *p, size_t n)
{
    char *to = *at;

    if (n != 0) {
        memcpy(to, p, n);
    }
    *at += n;
    return to;
}

/* One block: the calls and ids, which want alignment, before the texts. */
static struct turn *make(const struct job *j, const struct turn_draft *d,
                         const struct str *text, const struct chat_turn *c)
{
    size_t calls = (size_t)d->n_calls * sizeof(struct chat_turn_call);
    size_t bytes = sizeof(struct turn) + calls + d->ids.n + d->reasoning.n +
                   d->content.n + d->calls.n + text->n;
    struct turn *x = bytes <= TURNS_OWNER_BYTES ? malloc(bytes) : NULL;
    const char *of_calls;
    char *at;

    if (x == NULL) {
        return NULL;
    }
    memset(x, 0, sizeof(*x));
    x->chat = *c;
    x->bytes = bytes;
    x->uid = j->uid;
    memcpy(x->tenant, j->tenant, sizeof(x->tenant));
    x->call = (struct chat_turn_call *)(void *)x->data;
    at = x->data + calls;
    x->chat.ids = (const int32_t *)(const void *)put(&at, d->ids.p, d->ids.n);
    x->chat.n_ids = (int)(d->ids.n / sizeof(int32_t));
    of_calls = put(&at, d->calls.p, d->calls.n);
    x->chat.reasoning = put(&at, d->reasoning.p, d->reasoning.n);
    x->chat.n_reasoning = d->reasoning.n;
    x->chat.content = put(&at, d->content.p, d->content.n);
    x->chat.n_content = d->content.n;
    x->chat.text = put(&at, text->p, text->n);
    x->chat.n_text = text->n;
    x->chat.call = x->call;
    x->chat.n_calls = d->n_calls;
    for (int i = 0; i < d->n_calls; i++) {
        const struct turn_call *call = &d->call[i];

        x->call[i] = (struct chat_turn_call){
            .id = of_calls + call->id,
            .n_id = call->n_id,
            .name = of_calls + call->name,
            .n_name = call->n_name,
            .arguments = of_calls + call->arguments,
            .n_arguments = call->n_arguments,
        };
    }
    return x;
}

/* Makes room, the owner's own turns first where they are too many. */
static void make_room(struct turns *t, const struct turn *for_this)
{
    size_t own = for_this->bytes;

    for (struct turn *x = t->newest, *older; x != NULL; x = older) {
        older = x->older;
        if (is_of(x, for_this->uid, for_this->tenant)) {
            own += x->bytes;
            if (own > TURNS_OWNER_BYTES) {
                own -= x->bytes;
                forget(t, x);
            }
        }
    }
    while (t->bytes + for_this->bytes > TURNS_MAX_BYTES) {
        forget(t, t->oldest);
    }
}

static int collect(void *ctx, const struct parse_piece *p)
{
    if (p->kind == PARSE_CONTENT) {
        str_add(ctx, p->text, p->n);
    }
    return 0;
}

/* Where in the text what follows the reasoning begins; n where it is not one
 * stretch up to the end. */
static size_t answer_of(const struct job *j, const struct str *text)
{
    const struct parse_args a = {.reasoning = j->thinking};
    struct str answer = {0};
    size_t at = text->n;
    struct parse *p;

    if (parse_create(&p, &a) < 0) {
        return at;
    }
    if (parse_feed(p, text->p, text->n, collect, &answer) == 0 &&
        parse_flush(p, collect, &answer) == 0 && answer.err == 0 &&
        answer.n <= text->n && answer.n != 0 &&
        memcmp(text->p + text->n - answer.n, answer.p, answer.n) == 0) {
        at = text->n - answer.n;
    }
    parse_destroy(p);
    str_finish(&answer);
    return at;
}

/* The text of the ids, and where the answer begins in both. */
static void set_text(struct chat_turn *c, const struct job *j,
                     const struct tokenizer *tokenizer,
                     const struct turn_draft *d, struct str *text)
{
    const int32_t *ids = (const int32_t *)(const void *)d->ids.p;
    int n_ids = (int)(d->ids.n / sizeof(*ids));
    size_t at = 0, n;

    for (int i = 0; i < n_ids; i++) {
        const char *bytes = tokenizer_bytes(tokenizer, ids[i], &n);

        str_add(text, bytes, bytes != NULL ? n : 0);
    }
    c->answer = answer_of(j, text);
    c->answer_id = -1;
    for (int i = 0; i < n_ids && c->answer < text->n && at <= c->answer; i++) {
        if (at == c->answer) {
            c->answer_id = i;
            break;
        }
        at += tokenizer_bytes(tokenizer, ids[i], &n) != NULL ? n : 0;
    }
}

static void add(struct turns *t, struct turn *x)
{
    struct turn *same, **bucket;

    (void)pthread_mutex_lock(&t->lock);
    same = look(t, x->uid, x->tenant, x->call[0].id, x->call[0].n_id);
    if (same != NULL) {
        forget(t, same);
    }
    make_room(t, x);
    bucket = bucket_of(t, x->call[0].id, x->call[0].n_id);
    x->next_bucket = *bucket;
    *bucket = x;
    link_newest(t, x);
    t->bytes += x->bytes;
    (void)pthread_mutex_unlock(&t->lock);
}

void turns_add(struct turns *t, const struct job *j,
               const struct tokenizer *tokenizer, const struct turn_draft *d)
{
    struct chat_turn c = {.thinking = j->thinking};
    struct str text = {0};
    struct turn *x = NULL;

    if (d->n_calls == 0 || d->err != 0 || d->reasoning.err != 0 ||
        d->content.err != 0 || d->ids.err != 0 || d->calls.err != 0) {
        return;
    }
    set_text(&c, j, tokenizer, d, &text);
    if (text.err == 0) {
        x = make(j, d, &text, &c);
    }
    if (x != NULL) {
        add(t, x);
    }
    str_finish(&text);
}

/* ---- finding ----------------------------------------------------------- */

const struct chat_turn *turns_find(struct turns *t, uint32_t uid,
                                   const char *tenant, const char *id, size_t n)
{
    struct turn *x;

    (void)pthread_mutex_lock(&t->lock);
    x = look(t, uid, tenant, id, n);
    if (x == NULL) {
        (void)pthread_mutex_unlock(&t->lock);
        return NULL;
    }
    unlink_use(t, x);
    link_newest(t, x);
    return &x->chat;
}

void turns_release(struct turns *t)
{
    (void)pthread_mutex_unlock(&t->lock);
}

size_t turns_bytes(struct turns *t)
{
    size_t n;

    (void)pthread_mutex_lock(&t->lock);
    n = t->bytes;
    (void)pthread_mutex_unlock(&t->lock);
    return n;
}
