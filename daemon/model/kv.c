/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The format of a KV page. Owns the cache's buffers, one a layer; knows no
 * sequence and no table.
 *
 * A page is 64 slots at absolute, aligned positions, of all layers of its
 * group: full-attention trunk layers (MODEL_FULL), or sliding trunk layers and
 * the MTP blocks (MODEL_SLIDING). In a layer's buffer page p lies at
 * p * page_bytes of that layer:
 *
 *     K [n_kv_head][64][128], then V [n_kv_head][64][128], BF16, K after RoPE
 *
 * An exported page is the parts of its layers one after another, in ascending
 * order of layers, MTP blocks last: page_bytes[group] bytes.
 */

#include "daemon/model/kv.h"

#include <errno.h>
#include <string.h>

static int layer_init(struct kv *kv, int i, const struct shape_layer *l)
{
    struct kern_kv *at = &kv->layer[i];
    enum model_group g = l->sliding ? MODEL_SLIDING : MODEL_FULL;

    at->dtype = KERN_BF16;
    at->n_kv_head = l->n_kv_head;
    at->bytes_per_token = (size_t)l->n_kv_head * KERN_HEAD_DIM * 2 * 2;
    at->page_bytes = at->bytes_per_token * KERN_PAGE_TOK;
    at->n_pages = kv->n_pages[g];
    kv->group[i] = g;
    kv->page_bytes[g] += at->page_bytes;
    return kern_buf_new(kv->k, at->page_bytes * (size_t)at->n_pages,
                        &at->pages.buf);
}

int kv_init(struct kv *kv, struct kern *k, const struct shape *s, int n_mtp,
            const int n_pages[MODEL_N_GROUPS])
{
    memset(kv, 0, sizeof(*kv));
    kv->k = k;
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        kv->n_pages[g] = n_pages[g];
    }
    for (int i = 0; i < s->n_layers + n_mtp; i++) {
        int r = layer_init(kv, i, &s->layer[i]);

        kv->n_layers = i + 1;
        if (r < 0) {
            kv_finish(kv);
            return r;
        }
    }
    return 0;
}

void kv_finish(struct kv *kv)
{
    for (int i = 0; i < kv->n_layers; i++) {
        kern_buf_free(kv->k, kv->layer[i].pages.buf);
    }
    kv->n_layers = 0;
}

static struct kern_ptr page_at(const struct kv *kv, int layer, int page)
{
    struct kern_ptr p = kv->layer[layer].pages;

    p.off += (size_t)page * kv->layer[layer].page_bytes;
    return p;
}

static bool have(const struct kv *kv, enum model_group g, int page)
{
    return page >= 0 && page < kv->n_pages[g];
}

int kv_copy_page(struct kv *kv, enum model_group g, int dst, int src)
{
    int r = have(kv, g, dst) && have(kv, g, src) ? 0 : -EINVAL;

    for (int i = 0; r == 0 && i < kv->n_layers; i++) {
        if (kv->group[i] == g) {
            r = kern_copy(kv->k, page_at(kv, i, dst), page_at(kv, i, src),
                          kv->layer[i].page_bytes);
        }
    }
    return r;
}

int kv_export_page(struct kv *kv, enum model_group g, int page, void *to)
{
    int r = have(kv, g, page) ? 0 : -EINVAL;
    char *at = to;

    for (int i = 0; r == 0 && i < kv->n_layers; i++) {
        if (kv->group[i] == g) {
            size_t n = kv->layer[i].page_bytes;

            r = kern_download(kv->k, at, page_at(kv, i, page), n);
            at += n;
        }
    }
    return r;
}

int kv_import_page(struct kv *kv, enum model_group g, int page,
                   const void *from)
{
    int r = have(kv, g, page) ? 0 : -EINVAL;
    const char *at = from;

    for (int i = 0; r == 0 && i < kv->n_layers; i++) {
        if (kv->group[i] == g) {
            size_t n = kv->layer[i].page_bytes;

            r = kern_upload(kv->k, page_at(kv, i, page), at, n);
            at += n;
        }
    }
    return r;
}

int kv_scrub_page(struct kv *kv, enum model_group g, int page)
{
    int r = have(kv, g, page) ? 0 : -EINVAL;

    for (int i = 0; r == 0 && i < kv->n_layers; i++) {
        if (kv->group[i] == g) {
            r = kern_fill(kv->k, page_at(kv, i, page), 0xff,
                          kv->layer[i].page_bytes);
        }
    }
    return r;
}
