/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Hands the tensors of a checkpoint to a backend as opaque weights. Owns the
 * kern_weights; the bytes they read belong to the checkpoint (mapped or copied,
 * load.c). One thread.
 *
 * What matters: bytes go to the backend where they lie, never through a second
 * copy. Two exceptions, both small: a tensor that does not begin at a multiple
 * of its element's size is filled instead of mapped, and a router bias stored
 * as BF16 is widened to the F32 that the router adds (which is exact). With
 * weights = compact the packed form (compact.c) takes a matrix's place. To a
 * device bytes go through its rooms (stream.c).
 */
#include "daemon/model/weights.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/checkpoint.h"
#include "daemon/model/compact.h"
#include "daemon/model/load.h"
#include "daemon/model/report.h"
#include "daemon/model/stream.h"
#include "kernels/quant.h"

/* Where a role lives in struct weights_layer. */
static const size_t layer_member[N_ROLES] = {
    [ROLE_ATTN_NORM] = offsetof(struct weights_layer, attn_norm),
    [ROLE_Q] = offsetof(struct weights_layer, q),
    [ROLE_K] = offsetof(struct weights_layer, k),
    [ROLE_V] = offsetof(struct weights_layer, v),
    [ROLE_G] = offsetof(struct weights_layer, g),
    [ROLE_Q_NORM] = offsetof(struct weights_layer, q_norm),
    [ROLE_K_NORM] = offsetof(struct weights_layer, k_norm),
    [ROLE_O] = offsetof(struct weights_layer, o),
    [ROLE_FFN_NORM] = offsetof(struct weights_layer, ffn_norm),
    [ROLE_GATE] = offsetof(struct weights_layer, gate),
    [ROLE_UP] = offsetof(struct weights_layer, up),
    [ROLE_DOWN] = offsetof(struct weights_layer, down),
    [ROLE_ROUTER] = offsetof(struct weights_layer, router),
    [ROLE_ROUTER_BIAS] = offsetof(struct weights_layer, router_bias),
    [ROLE_EXPERT_GATE] = offsetof(struct weights_layer, expert_gate),
    [ROLE_EXPERT_UP] = offsetof(struct weights_layer, expert_up),
    [ROLE_EXPERT_DOWN] = offsetof(struct weights_layer, expert_down),
    [ROLE_SHARED_GATE] = offsetof(struct weights_layer, shared_gate),
    [ROLE_SHARED_UP] = offsetof(struct weights_layer, shared_up),
    [ROLE_SHARED_DOWN] = offsetof(struct weights_layer, shared_down),
};

static struct kern_weight **place(struct weights *w, const struct shape *h,
                                  const struct slot *slot)
{
    bool mtp = slot->layer >= h->n_layers;
    struct weights_mtp *m = mtp ? &w->mtp[slot->layer - h->n_layers] : NULL;
    struct weights_layer *l;

    switch (slot->role) {
    case ROLE_EMBED:
        return &w->embed;
    case ROLE_NORM:
        return &w->norm;
    case ROLE_HEAD:
        return &w->head;
    case ROLE_ENORM:
        return &m->enorm;
    case ROLE_HNORM:
        return &m->hnorm;
    case ROLE_EH_PROJ:
        return &m->eh_proj;
    case ROLE_MTP_NORM:
        return &m->norm;
    case ROLE_MTP_HEAD:
        return &m->head;
    default:
        l = mtp ? &m->block : &w->layer[slot->layer];
        return (struct kern_weight **)((char *)l + layer_member[slot->role]);
    }
}

/* Bytes that an element of a plane must be aligned to. */
static uint64_t plane_align(enum kern_dtype t, int plane)
{
    switch (t) {
    case KERN_BF16:
        return 2;
    case KERN_F32:
        return 4;
    case KERN_FP8_B128:
        return plane == 1 ? 4 : 1;
    case KERN_NVFP4:
    case KERN_NVFP4_DIV:
        return plane == 2 ? 4 : 1;
    default:
        return 1;
    }
}

static bool is_aligned(const struct slot *slot)
{
    enum kern_dtype t = slot->desc.dtype;
    int n = slot->desc.experts > 0 ? slot->desc.experts : 1;

    for (int e = 0; e < n; e++) {
        for (int p = 0; p < kern_weight_n_planes(t); p++) {
            if (slot_plane(slot, e, p).off % plane_align(t, p) != 0) {
                return false;
            }
        }
    }
    return true;
}

static int give_widened(struct kern *k, struct kern_weight *w,
                        const unsigned char *from, size_t n)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        uint16_t b;
        float f;

        memcpy(&b, from + 2 * i, sizeof(b));
        f = quant_bf16_to_f32(b);
        r = kern_weight_fill(k, w, 0, 0, i * sizeof(f), &f, sizeof(f));
    }
    return r;
}

/* All planes of all experts, by mapping or by filling. */
static int give_planes(struct checkpoint *ck, struct kern *k,
                       const struct slot *slot, struct kern_weight *w)
{
    int n = slot->desc.experts > 0 ? slot->desc.experts : 1;
    bool map = is_aligned(slot);
    struct kern_weight_desc packed;
    const void *plane[3];
    int r = 0;

    if (k->ops->load_room != NULL) {
        return 0; /* bring_to_device gave them */
    }
    if (compact_find(ck->compact, slot, &packed, plane)) {
        for (int p = 0; p < 3 && r == 0; p++) {
            r = kern_weight_map(k, w, 0, p, plane[p],
                                kern_weight_plane_bytes(&packed, p));
        }
        return r;
    }
    if (slot->desc.dtype == KERN_F32 && slot->scheme == SCHEME_BF16) {
        struct slot_range g = slot_plane(slot, 0, 0);

        return give_widened(k, w, ck->map[g.file].at + g.off, g.bytes / 2);
    }
    for (int e = 0; e < n && r == 0; e++) {
        for (int p = 0; p < kern_weight_n_planes(slot->desc.dtype) && r == 0;
             p++) {
            struct slot_range g = slot_plane(slot, e, p);
            const unsigned char *at = ck->map[g.file].at + g.off;

            r = map ? kern_weight_map(k, w, e, p, at, g.bytes)
                    : kern_weight_fill(k, w, e, p, 0, at, g.bytes);
        }
    }
    return r;
}

/* Makes every weight, still empty: what the backend cannot compute with shows
 * before the first byte is read, in one line. */
static int make_all(struct checkpoint *ck, struct weights *w,
                    struct report *rep)
{
    const struct slots *s = &ck->slots;
    const struct slot *first = NULL;
    char name[SLOT_MAX_NAME];
    int n = 0, r = 0;

    for (int i = 0; (r == 0 || r == -ENOTSUP) && i < s->n; i++) {
        const struct slot *slot = &s->slot[i];
        struct kern_weight_desc d = slot->desc;
        const void *plane[3];

        if (!checkpoint_wants(ck, slot) || compact_is_late(ck->compact, slot)) {
            continue;
        }
        (void)compact_find(ck->compact, slot, &d, plane);
        r = kern_weight_new(w->kern, &d, place(w, &ck->shape, slot));
        if (r == -ENOTSUP && n++ == 0) {
            first = slot;
        }
    }
    if (n > 0) {
        report_problem(rep, REPORT_MISMATCH,
                       "%s: %s: expected a form that backend %s computes "
                       "with, found %s, as in %d weights",
                       ck->file[slot_plane(first, 0, 0).file].name,
                       slot_text(s, first, name, sizeof(name)),
                       w->kern->ops->name, scheme_name(first->scheme), n);
        return -EBADMSG;
    }
    return r;
}

/* One weight. -ERANGE and what else the backend refuses becomes a problem. */
static int give_slot(struct checkpoint *ck, struct kern *k,
                     const struct slot *slot, struct kern_weight *w,
                     struct report *rep)
{
    char name[SLOT_MAX_NAME];
    int r = give_planes(ck, k, slot, w);

    if (r == 0) {
        r = kern_weight_ready(k, w);
    }
    if (r == -ENOMEM) {
        return r;
    }
    if (r < 0) {
        report_problem(rep, REPORT_VALUE, "%s: %s: %s",
                       ck->file[slot_plane(slot, 0, 0).file].name,
                       slot_text(&ck->slots, slot, name, sizeof(name)),
                       kern_error(k));
    }
    return 0;
}

/* Packs where that is asked for and the backend computes with it. */
static int pack(struct checkpoint *ck, struct kern *k, struct report *rep)
{
    int r;

    if (ck->conf.weights != MODEL_COMPACT) {
        return 0;
    }
    r = compact_computes(k);
    if (r == -ENOTSUP) {
        report_note(rep, "weights = compact: backend %s takes BF16 as it is",
                    k->ops->name);
        return 0;
    }
    return r < 0
               ? r
               : compact_open(ck, rep, k->ops->load_room != NULL, &ck->compact);
}

struct places {
    struct weights *w;
    const struct shape *shape;
};

static struct kern_weight *weight_of(void *ctx, const struct slot *slot)
{
    const struct places *p = ctx;

    return *place(p->w, p->shape, slot);
}

/* A matrix that was packed just now, or stays as it is. */
static int give_packed(void *ctx, const struct slot *slot,
                       const struct kern_weight_desc *d,
                       const void *const plane[3])
{
    const struct places *p = ctx;
    struct kern_weight **w = place(p->w, p->shape, slot);
    int r = kern_weight_new(p->w->kern, d, w);

    for (int i = 0; plane[0] != NULL && r == 0 && i < 3; i++) {
        r = kern_weight_fill(p->w->kern, *w, 0, i, 0, plane[i],
                             kern_weight_plane_bytes(d, i));
    }
    return r;
}

static int bring_to_device(struct checkpoint *ck, struct weights *w,
                           struct report *rep)
{
    struct places p = {w, &ck->shape};
    int r = compact_each(ck, rep, give_packed, &p);

    return r < 0 ? r : stream_weights(ck, w->kern, weight_of, &p, rep);
}

/* To a device by way of its rooms, else to where the host's memory is. */
static int bring(struct checkpoint *ck, struct weights *w, struct report *rep)
{
    return w->kern->ops->load_room != NULL ? bring_to_device(ck, w, rep)
                                           : load_bytes(ck, rep);
}

/* Nothing is left of the load but the weights. */
static int end_load(struct checkpoint *ck, struct kern *k, int r)
{
    int end = k->ops->load_end != NULL ? kern_load_end(k) : 0;

    if (k->ops->load_end != NULL) {
        compact_release(ck->compact);
    }
    return r < 0 ? r : end;
}

static int give_all(struct checkpoint *ck, struct weights *w,
                    struct report *rep)
{
    const struct slots *s = &ck->slots;
    char why[256];
    int r = pack(ck, w->kern, rep);

    r = r < 0 ? r : make_all(ck, w, rep);

    if (r == 0) {
        r = bring(ck, w, rep);
    }
    for (int i = 0; r == 0 && i < s->n; i++) {
        const struct slot *slot = &s->slot[i];

        if (checkpoint_wants(ck, slot)) {
            r = give_slot(ck, w->kern, slot, *place(w, &ck->shape, slot), rep);
        }
    }
    if (r == 0 && checkpoint_verify(ck, why, sizeof(why)) < 0) {
        report_problem(rep, REPORT_FILE, "%s", why);
    }
    return r;
}

int weights_load(struct checkpoint *ck, struct kern *k, struct model_report *to,
                 struct weights **ret)
{
    struct weights *w = calloc(1, sizeof(*w));
    struct report rep;
    int r, bad;

    if (w == NULL) {
        return -ENOMEM;
    }
    report_init(&rep);
    w->kern = k;
    w->n_layers = ck->shape.n_layers;
    w->n_mtp = ck->shape.n_mtp;
    r = end_load(ck, k, give_all(ck, w, &rep));
    bad = report_finish(&rep, to);
    r = r < 0 ? r : bad;
    if (r < 0) {
        weights_destroy(w);
        return r;
    }
    *ret = w;
    return 0;
}

static void free_layer(struct kern *k, struct weights_layer *l)
{
    for (int r = ROLE_FIRST_OF_LAYER; r < ROLE_FIRST_OF_MTP; r++) {
        kern_weight_free(k,
                         *(struct kern_weight **)((char *)l + layer_member[r]));
    }
}

void weights_destroy(struct weights *w)
{
    if (w == NULL) {
        return;
    }
    kern_weight_free(w->kern, w->embed);
    kern_weight_free(w->kern, w->norm);
    kern_weight_free(w->kern, w->head);
    for (int i = 0; i < w->n_layers; i++) {
        free_layer(w->kern, &w->layer[i]);
    }
    for (int i = 0; i < w->n_mtp; i++) {
        struct weights_mtp *m = &w->mtp[i];

        free_layer(w->kern, &m->block);
        kern_weight_free(w->kern, m->enorm);
        kern_weight_free(w->kern, m->hnorm);
        kern_weight_free(w->kern, m->eh_proj);
        kern_weight_free(w->kern, m->norm);
        kern_weight_free(w->kern, m->head);
    }
    free(w);
}
