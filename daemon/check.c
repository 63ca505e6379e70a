/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepd --check: what a start would find, for the operator to read before he
 * starts. Reads headers and the tokenizer, no weights, and touches no socket:
 * it can run beside a daemon that serves.
 *
 * Owns nothing. One thread. The invariant: the status is that of a start with
 * the same configuration, as far as files can tell.
 */

#include "daemon/check.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "daemon/model/model.h"
#include "daemon/text/tokenizer.h"

static void put_bytes(const char *what, uint64_t n)
{
    printf("  %-22s %18llu bytes  %9.2f GiB\n", what, (unsigned long long)n,
           (double)n / (double)(1 << 30));
}

static void put_plan(const struct model_info *i)
{
    static const char *const groups[MODEL_N_GROUPS] = {"full", "sliding"};
    const struct model_memory *m = &i->memory;
    uint64_t weights = m->weights_bf16 + m->weights_experts + m->weights_other +
                       m->weights_mtp;

    printf("model: %s, %s, %d layers, %d MTP layers, %d words\n", i->family,
           i->dialect, i->n_layers, i->n_mtp, i->vocab);
    printf("memory plan:\n");
    put_bytes("weights, BF16", m->weights_bf16);
    put_bytes("weights, experts", m->weights_experts);
    put_bytes("weights, other", m->weights_other);
    put_bytes("weights, MTP layers", m->weights_mtp);
    put_bytes("KV cache", m->kv_bytes);
    put_bytes("checkpoint vectors", m->checkpoint_bytes);
    put_bytes("activations", m->activations);
    put_bytes("all of it",
              weights + m->kv_bytes + m->checkpoint_bytes + m->activations);
    put_bytes("available here", m->available);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        printf("  KV pages, %-11s %18d pages of %llu bytes\n", groups[g],
               m->kv_pages[g], (unsigned long long)m->kv_page_bytes[g]);
    }
    printf("longest sequence: %d tokens (the checkpoint allows %d)\n",
           m->max_model_len, i->max_model_len);
}

static int status_of(int r)
{
    switch (r) {
    case 0:
        return EX_OK;
    case -ENODEV:
        return EX_UNAVAILABLE;
    case -E2BIG:
        return EX_CONFIG;
    case -ENOMEM:
        return EX_SOFTWARE;
    default:
        return EX_DATAERR;
    }
}

/* The start loads it too, and ends where it cannot. */
static int check_tokenizer(const struct model_conf *c,
                           const struct model_info *i)
{
    struct tokenizer *t = NULL;
    char why[512] = "";
    int r = tokenizer_load(&t, c->path, why, sizeof(why));

    if (r == 0 && tokenizer_vocab(t) > i->vocab) {
        (void)snprintf(why, sizeof(why), "ids up to %d, the model has %d",
                       tokenizer_vocab(t) - 1, i->vocab);
        r = -EBADMSG;
    }
    if (r < 0) {
        printf("problem: tokenizer: %s\n", why[0] != '\0' ? why : strerror(-r));
    }
    tokenizer_destroy(t);
    return r;
}

int check_run(const struct model_conf *c)
{
    struct model_report rep = {0};
    struct model_info info;
    int r, r_tok = 0;

    memset(&info, 0, sizeof(info));
    r = model_check(c, &rep, &info);
    for (int i = 0; i < rep.n_notes; i++) {
        printf("note: %s\n", rep.note[i]);
    }
    for (int i = 0; i < rep.n_problems; i++) {
        printf("problem: %s\n", rep.problem[i]);
    }
    if (r < 0 && rep.n_problems == 0) {
        printf("problem: %s: %s\n", c->path, strerror(-r));
    }
    if (info.n_layers > 0) {
        put_plan(&info);
    }
    if (r == 0) {
        r_tok = check_tokenizer(c, &info);
    }
    model_report_finish(&rep);
    r = status_of(r < 0 ? r : r_tok);
    if (r == EX_OK) {
        printf("a start would serve\n");
    } else {
        printf("a start would end with status %d\n", r);
    }
    return r;
}
