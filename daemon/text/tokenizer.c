/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Text to ids and ids to bytes. An encode goes: added tokens cut the text where
 * they may (added.c); what lies between is split into words (split.c), invalid
 * bytes aside, which are words of their own; each word is merged (bpe.c).
 * Reading the files is tokfile.c's.
 *
 * Immutable after load, any thread; scratch lives in struct encode, on the
 * stack and heap of the call. The invariant: the concatenated bytes of the ids
 * are the bytes of the text.
 */
#include "daemon/text/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/text/tokfile.h"
#include "daemon/text/utf8.h"

/* ---- load ------------------------------------------------------------- */

int tokenizer_load_json(struct tokenizer **ret, const char *json, size_t n,
                        char *why, size_t n_why)
{
    const struct why w = {.p = why, .n = n_why};
    struct tokenizer *t;
    json_t *root = NULL;
    int r = tokfile_json("tokenizer.json", json, n, &root, &w);

    if (r < 0) {
        return r;
    }
    t = calloc(1, sizeof(*t));
    r = t != NULL ? tokfile_fill(t, root, &w)
                  : why_set(&w, -ENOMEM, "out of memory");
    json_decref(root);
    if (r < 0) {
        tokenizer_destroy(t);
        return r;
    }
    *ret = t;
    return 0;
}

int tokenizer_load(struct tokenizer **ret, const char *dir, char *why,
                   size_t n_why)
{
    const struct why w = {.p = why, .n = n_why};
    struct tokenizer *t = NULL;
    json_t *root = NULL;
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r;

    if (fd < 0) {
        r = -errno;
        return why_set(&w, r, "%s: %s", dir, strerror(-r));
    }
    r = tokfile_read(fd, "tokenizer.json", &root, &w);
    if (r == -ENOENT) {
        why_set(&w, r, "tokenizer.json: no such file");
    }
    if (r < 0) {
        goto out;
    }
    t = calloc(1, sizeof(*t));
    if (t == NULL) {
        r = why_set(&w, -ENOMEM, "out of memory");
        goto out;
    }
    r = tokfile_fill(t, root, &w);
    if (r < 0) {
        goto out;
    }
    r = tokfile_ends(t, fd, &w);
    if (r < 0) {
        goto out;
    }
    *ret = t;
    t = NULL;
out:
    tokenizer_destroy(t);
    json_decref(root);
    close(fd);
    return r;
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (t == NULL) {
        return;
    }
    added_finish(&t->raw);
    added_finish(&t->normalized);
    split_finish(&t->split);
    bpe_finish(&t->bpe);
    vocab_finish(&t->vocab);
    free(t);
}

/* ---- encode ----------------------------------------------------------- */

struct encode {
    const struct tokenizer *t;
    const uint8_t *text;
    struct split_scratch split;
    struct bpe_scratch bpe;
    struct added_match *cut; /* [n_cuts] added tokens, in order */
    size_t n_cuts, cap_cuts;
    struct bpe_ids ids;
};

static int push_cut(struct encode *e, const struct added_match *m)
{
    if (e->n_cuts == e->cap_cuts) {
        size_t cap = e->cap_cuts != 0 ? 2 * e->cap_cuts : 64;
        struct added_match *cut = realloc(e->cut, cap * sizeof(*cut));

        if (cut == NULL) {
            return -ENOMEM;
        }
        e->cut = cut;
        e->cap_cuts = cap;
    }
    e->cut[e->n_cuts++] = *m;
    return 0;
}

static int cut_normalized(struct encode *e, size_t from, size_t to)
{
    struct added_match m;
    int r;

    while (added_find(&e->t->normalized, e->text, from, to, &m)) {
        r = push_cut(e, &m);
        if (r < 0) {
            return r;
        }
        from = m.off + m.n;
    }
    return 0;
}

static int cut_span(struct encode *e, size_t from, size_t to)
{
    struct added_match m;
    int r;

    while (added_find(&e->t->raw, e->text, from, to, &m)) {
        r = cut_normalized(e, from, m.off);
        if (r < 0) {
            return r;
        }
        r = push_cut(e, &m);
        if (r < 0) {
            return r;
        }
        from = m.off + m.n;
    }
    return cut_normalized(e, from, to);
}

static int emit_word(void *ctx, const uint8_t *word, size_t n)
{
    struct encode *e = ctx;

    return bpe_encode(&e->t->bpe, &e->bpe, word, n, &e->ids);
}

/* Text without added tokens. */
static int encode_plain(struct encode *e, const uint8_t *p, size_t n)
{
    size_t valid;
    int r;

    while (n > 0) {
        valid = utf8_valid(p, n);
        r = split_run(&e->t->split, &e->split, p, valid, emit_word, e);
        if (r < 0) {
            return r;
        }
        p += valid;
        n -= valid;
        while (n > 0 && utf8_char(p, n) == 0) {
            r = bpe_push(&e->ids, e->t->bpe.byte_id[*p]);
            if (r < 0) {
                return r;
            }
            p++;
            n--;
        }
    }
    return 0;
}

static int encode_all(struct encode *e, size_t n)
{
    size_t off = 0;
    int r;

    for (size_t i = 0; i < e->n_cuts; i++) {
        const struct added_match *m = &e->cut[i];

        r = encode_plain(e, e->text + off, m->off - off);
        if (r < 0) {
            return r;
        }
        r = bpe_push(&e->ids, m->id);
        if (r < 0) {
            return r;
        }
        off = m->off + m->n;
    }
    return encode_plain(e, e->text + off, n - off);
}

int tokenizer_encode_spans(const struct tokenizer *t, const char *text,
                           size_t n, const struct tokenizer_span *span,
                           int n_spans, int max_ids, int32_t **ids, int *n_ids,
                           int *cap)
{
    struct encode e = {
        .t = t,
        .text = (const uint8_t *)text,
        .ids = {.v = *ids, .n = *n_ids, .cap = *cap, .max = max_ids},
    };
    int r;

    /* No need to look at what cannot fit. */
    if (max_ids < *n_ids ||
        n / t->max_bytes > (size_t)max_ids - (size_t)*n_ids || n > INT_MAX) {
        return -E2BIG;
    }
    r = split_scratch_init(&e.split, &t->split);
    if (r < 0) {
        return r;
    }
    for (int i = 0; i < n_spans; i++) {
        r = cut_span(&e, span[i].off, span[i].off + span[i].n);
        if (r < 0) {
            goto out;
        }
    }
    r = encode_all(&e, n);
    if (r == 0) {
        *n_ids = e.ids.n;
    }
out:
    *ids = e.ids.v;
    *cap = e.ids.cap;
    free(e.cut);
    bpe_scratch_finish(&e.bpe);
    split_scratch_finish(&e.split);
    return r;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                     bool special, int max_ids, int32_t **ids, int *n_ids,
                     int *cap)
{
    const struct tokenizer_span all = {.off = 0, .n = n};

    return tokenizer_encode_spans(t, text, n, &all, special ? 1 : 0, max_ids,
                                  ids, n_ids, cap);
}

/* ---- ids -------------------------------------------------------------- */

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id,
                            size_t *ret_n)
{
    return vocab_bytes(&t->vocab, id, ret_n);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.n_ids && t->vocab.entry[id].special;
}

int32_t tokenizer_id(const struct tokenizer *t, const char *content)
{
    size_t n = strlen(content);
    int32_t id = added_id(&t->raw, content, n);

    return id >= 0 ? id : added_id(&t->normalized, content, n);
}

int tokenizer_vocab(const struct tokenizer *t)
{
    return t->vocab.n_ids;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int tokenizer_eos(const struct tokenizer *t, int32_t *ret, int max)
{
    if (t->eos < 0) {
        return 0;
    }
    if (max > 0) {
        ret[0] = t->eos;
    }
    return 1;
}
