/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * The preparation thread and what it does with a job. Owns the tokenizer (which
 * others may use once it is loaded: it is immutable) and the jobs in its box.
 *
 * Text that came inside a message is plain text: a user's "<|im_end|>" becomes
 * ordinary tokens and cannot end a turn. A raw prompt is whole in its author's
 * hands, as a rendered prompt is, so control tokens in it are honoured; BOS
 * goes in front unless it is there.
 *
 * The invariant: whoever sends a job's final event has taken its ticket first,
 * and a job that was cancelled meanwhile is dropped in silence (the engine
 * thread has answered it).
 */

#include "daemon/sched/prep.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"
#include "daemon/base/mbox.h"
#include "daemon/text/badwords.h"
#include "daemon/text/callgram.h"
#include "daemon/text/chat.h"
#include "daemon/text/choice.h"
#include "daemon/text/format.h"
#include "daemon/text/mask.h"

struct prep {
    struct prep_conf conf;
    char *dir;
    struct mbox *box;
    pthread_t thread;
    bool started;
    atomic_bool stop;
    atomic_int state; /* 0 loading, 1 loaded, -errno; then why is set */
    atomic_int max_prompt_tokens;
    struct tokenizer *tokenizer;
    struct lexicon *lexicon; /* used by maskers as long as jobs live */
    char why[256];
};

/* ---- answers ------------------------------------------------------------- */

/* key: what the refusal is about, n bytes. */
static void fail(const struct prep_env *env, const struct job *j,
                 const char *code, const char *key, size_t n,
                 const char *message)
{
    struct event *e;

    if (ticket_take(env->tickets, j->id)) {
        e = event_error(j, code, "%s", message);
        (void)snprintf(e->detail, sizeof(e->detail), "%.*s", (int)n, key);
        env->emit(env->ctx, e);
    }
}

/* why: of text/, which begins with the key, or with a path from it on. */
static void fail_errno(const struct prep_env *env, const struct job *j, int r,
                       const char *why)
{
    size_t n = strspn(why, "abcdefghijklmnopqrstuvwxyz_");

    if (r == -ENOMEM) {
        fail(env, j, "no_memory", "", 0, "not enough memory for this text");
    } else {
        fail(env, j, "bad_request", why, n, why);
    }
}

/* The key of the text that a job is about. */
static const char *text_key(const struct job *j)
{
    return j->chat ? "messages" : "prompt";
}

/* The parts of an answer; the ticket is ours. False: out of memory. */
static bool put_ids(const struct prep_env *env, const struct job *j,
                    const int32_t *ids, int n)
{
    for (int at = 0; at < n;) {
        int m = n - at < PREP_PART_IDS ? n - at : PREP_PART_IDS;
        int32_t *copy = malloc((size_t)m * sizeof(*copy));
        struct event *e;

        if (copy == NULL) {
            return false;
        }
        memcpy(copy, ids + at, (size_t)m * sizeof(*copy));
        e = event_create(EVENT_PART, j);
        e->ids = copy;
        e->n_ids = m;
        env->emit(env->ctx, e);
        at += m;
    }
    return true;
}

/* Text is cut between characters, bytes anywhere. */
static bool put_text(const struct prep_env *env, const struct job *j,
                     const char *text, size_t n, bool bytes)
{
    for (size_t at = 0; at < n;) {
        size_t m = n - at < PREP_PART_BYTES ? n - at : PREP_PART_BYTES;
        struct event *e;
        char *copy;

        while (!bytes && at + m < n && m > 1 &&
               ((unsigned char)text[at + m] & 0xc0) == 0x80) {
            m--;
        }
        copy = malloc(m);
        if (copy == NULL) {
            return false;
        }
        memcpy(copy, text + at, m);
        e = event_create(EVENT_PART, j);
        e->text = (struct job_text){copy, m};
        e->text_is_bytes = bytes;
        env->emit(env->ctx, e);
        at += m;
    }
    return true;
}

static void finish(const struct prep_env *env, const struct job *j, bool ok,
                   int n_tokens)
{
    struct event *e;

    if (ok) {
        e = event_create(EVENT_DONE, j);
        e->plain = true;
        e->usage.prompt_tokens = n_tokens;
    } else {
        e = event_error(j, "no_memory", "not enough memory for the answer");
    }
    env->emit(env->ctx, e);
}

/* ---- jobs ---------------------------------------------------------------- */

/* The turns of one render. */
struct found {
    struct turns *turns;
    const struct job *job;
    bool held;
};

static const struct chat_turn *find_turn(void *ctx, const char *id, size_t n)
{
    struct found *f = ctx;
    const struct chat_turn *t =
        turns_find(f->turns, f->job->uid, f->job->tenant, id, n);

    f->held = t != NULL;
    return t;
}

static void release_turn(void *ctx)
{
    struct found *f = ctx;

    if (f->held) {
        turns_release(f->turns);
    }
    f->held = false;
}

static int render(const struct prep_env *env, const struct job *j,
                  bool generate, struct chat_prompt *ret, char *why,
                  size_t n_why)
{
    struct found found = {.turns = env->turns, .job = j};
    const struct chat_args a = {
        .messages = j->messages.p,
        .n_messages = j->messages.n,
        .tools = j->tools.p,
        .n_tools = j->tools.n,
        .reasoning = j->reasoning,
        .thinking = j->thinking,
        .generate = generate,
        .find = env->turns != NULL ? find_turn : NULL,
        .release = release_turn,
        .ctx = &found,
    };

    return chat_render(&a, ret, why, n_why);
}

/* BOS first, unless the text begins with it. */
static int encode_prompt(const struct tokenizer *t, const struct job_text *text,
                         bool special, int32_t **ret_ids, int *ret_n)
{
    int32_t bos = tokenizer_bos(t);
    int32_t *ids = NULL;
    int n = 0, cap = 0, r;

    if (bos >= 0) {
        cap = 64;
        ids = malloc((size_t)cap * sizeof(*ids));
        if (ids == NULL) {
            return -ENOMEM;
        }
        ids[n++] = bos;
    }
    r = tokenizer_encode(t, text->p, text->n, special, INT_MAX, &ids, &n, &cap);
    if (r < 0) {
        free(ids);
        return r;
    }
    if (bos >= 0 && n > 1 && ids[1] == bos) {
        memmove(ids, ids + 1, (size_t)--n * sizeof(*ids));
    }
    *ret_ids = ids;
    *ret_n = n;
    return 0;
}

/* What the request says of its tools. True, or it has been answered. */
static bool read_choice(const struct prep_env *env, struct job *j)
{
    static const enum job_choice kinds[] = {
        [CHOICE_AUTO] = JOB_CHOICE_AUTO,
        [CHOICE_NONE] = JOB_CHOICE_NONE,
        [CHOICE_REQUIRED] = JOB_CHOICE_REQUIRED,
        [CHOICE_NAMED] = JOB_CHOICE_NAMED,
    };
    char why[256] = "";
    struct choice c;
    int r = choice_read(j->tool_choice.p, j->tool_choice.n, j->tools.p,
                        j->tools.n, &c, why, sizeof(why));

    if (r < 0) {
        fail_errno(env, j, r, why);
        return false;
    }
    j->choice = kinds[c.kind];
    j->choice_name = (struct job_text){c.name, c.n_name};
    j->has_tools = c.has_tools;
    return true;
}

static int compile_bad_words(const struct job *j, struct gram **ret,
                             const struct why *why)
{
    struct badwords_word word[JOB_MAX_BAD_WORDS];

    if (*ret != NULL) {
        gram_destroy(*ret);
        return why_set(why, -EINVAL,
                       "bad_words together with response_format or a "
                       "tool_choice that calls are not supported");
    }
    for (int i = 0; i < j->n_bad_words; i++) {
        word[i] = (struct badwords_word){j->bad_word[i].p, j->bad_word[i].n};
    }
    return badwords_compile(ret, word, j->n_bad_words);
}

/* What the answer must fit: response_format, or calls that must be made. *ret
 * NULL: nothing; *ret_key: what a refusal is about. */
static int compile(const struct job *j, struct gram **ret, const char **ret_key,
                   const struct why *why)
{
    const bool reasoning = j->chat && j->thinking;
    const struct format_args f = {
        .text = j->response_format.p,
        .n = j->response_format.n,
        .reasoning = reasoning,
    };
    const struct callgram_args calls = {
        .tools = j->tools.p,
        .n_tools = j->tools.n,
        .name = j->choice_name.p,
        .n_name = j->choice_name.n,
        .reasoning = reasoning,
    };
    int r = 0;

    *ret_key = "response_format";
    if (f.text != NULL) {
        r = format_compile(ret, &f, why);
    }
    if (r == 0 && *ret != NULL && j->has_tools &&
        j->choice != JOB_CHOICE_NONE) {
        gram_destroy(*ret);
        *ret = NULL;
        return why_set(why, -EINVAL,
                       "response_format together with tools: tool_choice "
                       "must be none");
    }
    if (r == 0 && *ret == NULL &&
        (j->choice == JOB_CHOICE_REQUIRED || j->choice == JOB_CHOICE_NAMED)) {
        *ret_key = "tools";
        r = callgram_compile(ret, &calls, why);
    }
    if (r == 0 && j->n_bad_words > 0) {
        *ret_key = "bad_words";
        r = compile_bad_words(j, ret, why);
    }
    return r;
}

static bool compile_grammar(const struct prep_env *env, struct job *j)
{
    char text[256] = "not enough memory for this request";
    const struct why why = {text, sizeof(text)};
    const char *key;
    struct gram *g = NULL;
    int r = compile(j, &g, &key, &why);

    if (r == 0 && g != NULL && *env->lexicon == NULL) {
        r = lexicon_create(env->lexicon, env->tokenizer);
        if (r < 0) {
            gram_destroy(g);
        }
    }
    if (r == 0 && g != NULL) {
        r = compiled_create(&j->grammar, g, *env->lexicon);
    }
    if (r < 0 && ticket_take(env->tickets, j->id)) {
        struct event *e = event_error(j,
                                      r == -EINVAL  ? "bad_request"
                                      : r == -E2BIG ? "too_long"
                                                    : "no_memory",
                                      "%s", text);

        (void)snprintf(e->detail, sizeof(e->detail), "%s", key);
        env->emit(env->ctx, e);
    }
    return r == 0;
}

static bool do_generate(const struct prep_env *env, struct job *j)
{
    char why[256] = "";
    char message[128];
    int r;

    if (j->chat && !read_choice(env, j)) {
        return false;
    }
    if (j->chat) {
        struct chat_prompt p = {0};

        r = render(env, j, true, &p, why, sizeof(why));
        if (r == 0) {
            r = chat_tokenize(env->tokenizer, &p, INT_MAX, &j->ids, &j->n_ids);
            chat_prompt_finish(&p);
        }
        if (r == 0) {
            j->n_open =
                chat_open_turn(env->tokenizer, j->thinking, j->ids, j->n_ids);
        }
    } else {
        r = encode_prompt(env->tokenizer, &j->prompt,
                          j->kind != JOB_SCORE || j->parse_special, &j->ids,
                          &j->n_ids);
    }
    if (r < 0) {
        fail_errno(env, j, r, why[0] != '\0' ? why : "prompt: it is too long");
        return false;
    }
    if (j->n_ids == 0 || (j->kind == JOB_SCORE && j->n_ids < 2)) {
        fail(env, j, "bad_request", "prompt", strlen("prompt"),
             "the prompt is empty");
        return false;
    }
    if (env->max_prompt_tokens > 0 && j->n_ids > env->max_prompt_tokens) {
        snprintf(message, sizeof(message),
                 "the prompt has %d tokens, at most %d fit", j->n_ids,
                 env->max_prompt_tokens);
        fail(env, j, "too_long", text_key(j), strlen(text_key(j)), message);
        return false;
    }
    return compile_grammar(env, j);
}

static void do_tokenize(const struct prep_env *env, struct job *j)
{
    int cap = 0;
    int r =
        tokenizer_encode(env->tokenizer, j->prompt.p, j->prompt.n,
                         j->parse_special, INT_MAX, &j->ids, &j->n_ids, &cap);

    if (r < 0) {
        fail_errno(env, j, r, "prompt: it is too long");
    } else if (ticket_take(env->tickets, j->id)) {
        finish(env, j, put_ids(env, j, j->ids, j->n_ids), j->n_ids);
    }
}

static void do_detokenize(const struct prep_env *env, struct job *j)
{
    size_t total = 0, at = 0, n;
    char message[128];
    char *all;

    for (int i = 0; i < j->n_ids; i++) {
        if (tokenizer_bytes(env->tokenizer, j->ids[i], &n) == NULL) {
            snprintf(message, sizeof(message), "ids[%d]: there is no token %d",
                     i, (int)j->ids[i]);
            fail(env, j, "bad_request", "ids", strlen("ids"), message);
            return;
        }
        total += n;
    }
    all = malloc(total + 1);
    if (all == NULL) {
        fail_errno(env, j, -ENOMEM, "");
        return;
    }
    for (int i = 0; i < j->n_ids; i++) {
        const char *bytes = tokenizer_bytes(env->tokenizer, j->ids[i], &n);

        memcpy(all + at, bytes, n);
        at += n;
    }
    if (ticket_take(env->tickets, j->id)) {
        finish(env, j, put_text(env, j, all, total, true), j->n_ids);
    }
    free(all);
}

static void do_render(const struct prep_env *env, struct job *j)
{
    struct chat_prompt p = {0};
    char why[256] = "";
    bool ok;
    int r = render(env, j, j->add_generation, &p, why, sizeof(why));

    if (r < 0) {
        fail_errno(env, j, r, why);
        return;
    }
    if (j->want_ids) {
        r = chat_tokenize(env->tokenizer, &p, INT_MAX, &j->ids, &j->n_ids);
        if (r < 0) {
            fail_errno(env, j, r, "messages: they are too long");
            goto out;
        }
    }
    if (ticket_take(env->tickets, j->id)) {
        ok = j->want_ids ? put_ids(env, j, j->ids, j->n_ids)
                         : put_text(env, j, p.text, p.n, false);
        finish(env, j, ok, j->n_ids);
    }
out:
    chat_prompt_finish(&p);
}

bool prep_job(const struct prep_env *env, struct job *j)
{
    if (ticket_answered(env->tickets, j->id)) {
        return false;
    }
    switch (j->kind) {
    case JOB_GENERATE:
        if (j->session[0] != '\0' && !j->granted) {
            return true; /* the engine says when, and with which messages */
        }
        return do_generate(env, j);
    case JOB_SCORE:
        return do_generate(env, j);
    case JOB_SESSION:
        return true;
    case JOB_TOKENIZE:
        do_tokenize(env, j);
        break;
    case JOB_DETOKENIZE:
        do_detokenize(env, j);
        break;
    case JOB_RENDER:
        do_render(env, j);
        break;
    case JOB_N_KINDS:
        BUG_ON(true);
    }
    return false;
}

/* ---- the thread ---------------------------------------------------------- */

static void drop(struct prep *p, struct job *j)
{
    uint64_t id = j->id;

    job_destroy(j);
    ticket_close(p->conf.tickets, id);
}

static void *prep_main(void *arg)
{
    struct prep *p = arg;
    struct job *j;
    int r = tokenizer_load(&p->tokenizer, p->dir, p->why, sizeof(p->why));

    atomic_store(&p->state, r < 0 ? r : 1);
    p->conf.loaded(p->conf.ctx);
    while ((j = mbox_pop_wait(p->box, -1)) != NULL) {
        const struct prep_env env = {
            .tokenizer = p->tokenizer,
            .lexicon = &p->lexicon,
            .tickets = p->conf.tickets,
            .turns = p->conf.turns,
            .max_prompt_tokens = atomic_load(&p->max_prompt_tokens),
            .emit = p->conf.emit,
            .ctx = p->conf.ctx,
        };

        /* A granted job goes back in any case, for its session. Where it ends,
         * by failure or by order, the engine ends every job. */
        if (r < 0 || atomic_load(&p->stop) || prep_job(&env, j) || j->granted) {
            p->conf.forward(p->conf.ctx, j);
        } else {
            drop(p, j);
        }
    }
    p->conf.ended(p->conf.ctx);
    return NULL;
}

int prep_create(struct prep **ret, const struct prep_conf *c)
{
    struct prep *p = xcalloc(1, sizeof(*p));
    int r;

    p->conf = *c;
    p->dir = xstrdup(c->dir);
    atomic_init(&p->stop, false);
    atomic_init(&p->state, 0);
    atomic_init(&p->max_prompt_tokens, 0);
    r = mbox_create(&p->box, (size_t)c->max_queue);
    if (r < 0) {
        goto fail;
    }
    r = -pthread_create(&p->thread, NULL, prep_main, p);
    if (r < 0) {
        goto fail;
    }
    p->started = true;
    *ret = p;
    return 0;
fail:
    prep_destroy(p);
    return r;
}

int prep_submit(struct prep *p, struct job *j)
{
    int r = mbox_push(p->box, j);

    return r < 0 ? r : 0;
}

int prep_tokenizer(struct prep *p, const struct tokenizer **ret, char *why,
                   size_t n_why)
{
    int state = atomic_load(&p->state);

    if (state > 0) {
        *ret = p->tokenizer;
    } else if (state < 0) {
        snprintf(why, n_why, "%s", p->why);
    }
    return state;
}

void prep_limit(struct prep *p, int max_prompt_tokens)
{
    atomic_store(&p->max_prompt_tokens, max_prompt_tokens);
}

void prep_stop(struct prep *p)
{
    atomic_store(&p->stop, true);
    mbox_close(p->box);
}

void prep_join(struct prep *p)
{
    if (p->started) {
        (void)pthread_join(p->thread, NULL);
        p->started = false;
    }
}

void prep_destroy(struct prep *p)
{
    if (p == NULL) {
        return;
    }
    BUG_ON(p->started);
    mbox_destroy(p->box);
    lexicon_destroy(p->lexicon);
    tokenizer_destroy(p->tokenizer);
    free(p->dir);
    free(p);
}
