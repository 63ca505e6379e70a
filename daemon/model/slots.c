/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The weights that a shape asks for, the forms they may be stored in, and the
 * tensors of a checkpoint sorted into them. Which form it is, and whether all
 * of it is right, is fill.c's work. Reads no bytes of tensors. One thread.
 *
 * The invariant that matters: a tensor stands in at most one slot, in at most
 * one place of it.
 */
#include "daemon/model/slots.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct form slot_forms[N_SCHEMES] = {
    [SCHEME_BF16] = {"BF16", KERN_BF16, PART_WEIGHT, ST_BF16, 1, NO_PART,
                     ST_BOOL, ST_BOOL, 1, 1, NO_PART},
    [SCHEME_F32] = {"F32", KERN_F32, PART_WEIGHT, ST_F32, 1, NO_PART, ST_BOOL,
                    ST_BOOL, 1, 1, NO_PART},
    [SCHEME_FP8] = {"FP8 128x128", KERN_FP8_B128, PART_WEIGHT, ST_F8_E4M3, 1,
                    PART_SCALE_INV, ST_F32, ST_F32, 128, 128, NO_PART},
    [SCHEME_NVFP4] = {"ModelOpt NVFP4", KERN_NVFP4, PART_WEIGHT, ST_U8, 2,
                      PART_SCALE, ST_F8_E4M3, ST_F8_E4M3, 1, 16, PART_SCALE_2},
    [SCHEME_MXFP4_QUARK] = {"Quark MXFP4", KERN_MXFP4, PART_WEIGHT, ST_U8, 2,
                            PART_SCALE, ST_U8, ST_F8_E8M0, 1, 32, NO_PART},
    [SCHEME_MXFP4] = {"compressed-tensors MXFP4", KERN_MXFP4, PART_PACKED,
                      ST_U8, 2, PART_SCALE, ST_U8, ST_F8_E8M0, 1, 32, NO_PART},
    [SCHEME_NVFP4_CT] = {"compressed-tensors NVFP4", KERN_NVFP4_DIV,
                         PART_PACKED, ST_U8, 2, PART_SCALE, ST_F8_E4M3,
                         ST_F8_E4M3, 1, 16, PART_GLOBAL_SCALE},
};

const char *scheme_name(enum scheme s)
{
    return slot_forms[s].name;
}

enum kern_dtype scheme_dtype(enum scheme s)
{
    return slot_forms[s].dtype;
}

/* ---- the slots of a shape ------------------------------------------------ */

static void add(struct slots *s, int layer, enum role role, int rows, int cols,
                int experts, int shard)
{
    struct slot *slot = &s->slot[s->n];

    slot->role = role;
    slot->layer = layer;
    slot->desc = (struct kern_weight_desc){
        .dtype = role == ROLE_ROUTER_BIAS ? KERN_F32 : KERN_BF16,
        .rows = rows,
        .cols = cols,
        .experts = experts,
        .shard = shard,
    };
    s->at[layer + 1][role] = s->n++;
}

static void add_layer(struct slots *s, int i)
{
    const struct shape *h = s->shape;
    const struct shape_layer *l = &h->layer[i];
    int D = h->hidden, q = l->n_head * h->head_dim;
    int kv = l->n_kv_head * h->head_dim, E = h->n_expert;

    add(s, i, ROLE_ATTN_NORM, 1, D, 0, KERN_SHARD_NONE);
    add(s, i, ROLE_Q, q, D, 0, KERN_SHARD_ROWS);
    add(s, i, ROLE_K, kv, D, 0, KERN_SHARD_ROWS);
    add(s, i, ROLE_V, kv, D, 0, KERN_SHARD_ROWS);
    if (h->attn_gate) {
        add(s, i, ROLE_G, l->n_head, D, 0, KERN_SHARD_ROWS);
    }
    add(s, i, ROLE_Q_NORM, 1, h->head_dim, 0, KERN_SHARD_NONE);
    add(s, i, ROLE_K_NORM, 1, h->head_dim, 0, KERN_SHARD_NONE);
    add(s, i, ROLE_O, D, q, 0, KERN_SHARD_COLS);
    add(s, i, ROLE_FFN_NORM, 1, D, 0, KERN_SHARD_NONE);
    if (!l->moe) {
        add(s, i, ROLE_GATE, l->width, D, 0, KERN_SHARD_ROWS);
        add(s, i, ROLE_UP, l->width, D, 0, KERN_SHARD_ROWS);
        add(s, i, ROLE_DOWN, D, l->width, 0, KERN_SHARD_COLS);
        return;
    }
    add(s, i, ROLE_ROUTER, E, D, 0, KERN_SHARD_NONE);
    if (h->router_bias) {
        add(s, i, ROLE_ROUTER_BIAS, 1, E, 0, KERN_SHARD_NONE);
    }
    add(s, i, ROLE_EXPERT_GATE, h->expert_width, D, E, KERN_SHARD_EXPERTS);
    add(s, i, ROLE_EXPERT_UP, h->expert_width, D, E, KERN_SHARD_EXPERTS);
    add(s, i, ROLE_EXPERT_DOWN, D, h->expert_width, E, KERN_SHARD_EXPERTS);
    add(s, i, ROLE_SHARED_GATE, h->shared_width, D, 0, KERN_SHARD_ROWS);
    add(s, i, ROLE_SHARED_UP, h->shared_width, D, 0, KERN_SHARD_ROWS);
    add(s, i, ROLE_SHARED_DOWN, D, h->shared_width, 0, KERN_SHARD_COLS);
}

static void add_mtp(struct slots *s, int i)
{
    int D = s->shape->hidden;

    add(s, i, ROLE_ENORM, 1, D, 0, KERN_SHARD_NONE);
    add(s, i, ROLE_HNORM, 1, D, 0, KERN_SHARD_NONE);
    /* its output is a residual row, which every device needs whole */
    add(s, i, ROLE_EH_PROJ, D, 2 * D, 0, KERN_SHARD_NONE);
    add_layer(s, i);
    add(s, i, ROLE_MTP_NORM, 1, D, 0, KERN_SHARD_NONE);
    add(s, i, ROLE_MTP_HEAD, s->shape->vocab, D, 0, KERN_SHARD_ROWS);
}

int slots_init(struct slots *s, const struct shape *shape)
{
    int n_layers = shape->n_layers + shape->n_mtp;

    memset(s, 0, sizeof(*s));
    memset(s->at, -1, sizeof(s->at));
    s->shape = shape;
    s->slot = calloc((size_t)(n_layers + 1) * N_ROLES, sizeof(*s->slot));
    if (s->slot == NULL) {
        return -ENOMEM;
    }
    snprintf(s->prefix, sizeof(s->prefix), "model.");
    snprintf(s->prefix_mtp, sizeof(s->prefix_mtp), "model.");
    add(s, -1, ROLE_EMBED, shape->vocab, shape->hidden, 0, KERN_SHARD_NONE);
    for (int i = 0; i < shape->n_layers; i++) {
        add_layer(s, i);
    }
    add(s, -1, ROLE_NORM, 1, shape->hidden, 0, KERN_SHARD_NONE);
    add(s, -1, ROLE_HEAD, shape->vocab, shape->hidden, 0, KERN_SHARD_ROWS);
    for (int i = shape->n_layers; i < n_layers; i++) {
        add_mtp(s, i);
    }
    return 0;
}

void slots_finish(struct slots *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->slot[i].each);
    }
    free(s->slot);
    memset(s, 0, sizeof(*s));
}

bool slot_is_mtp(const struct slots *s, const struct slot *slot)
{
    return slot->layer >= s->shape->n_layers;
}

/* ---- names and places in texts ------------------------------------------- */

const char *slot_name(const struct slots *s, const struct slot *slot,
                      int expert, enum expert_names names, enum part part,
                      char *buf, size_t n)
{
    bool mtp = slot_is_mtp(s, slot);
    const char *prefix = slot->role == ROLE_HEAD ? ""
                         : mtp                   ? s->prefix_mtp
                                                 : s->prefix;
    char name[SLOT_MAX_NAME];

    snprintf(buf, n, "%s%s", prefix,
             name_format(name, sizeof(name), slot->layer, mtp, slot->role,
                         expert, names, part));
    return buf;
}

const char *slot_text(const struct slots *s, const struct slot *slot, char *buf,
                      size_t n)
{
    char *end;

    slot_name(s, slot, -1, EXPERTS_FUSED, PART_WEIGHT, buf, n);
    end = strrchr(buf, '.');
    if (end != NULL && strcmp(end, ".weight") == 0) {
        *end = '\0';
    }
    return buf;
}

/* ---- putting tensors into slots ------------------------------------------ */

void slot_unknown(const struct slots *s, int i_file, const struct st_tensor *t,
                  const char *why, struct report *rep)
{
    char shape[160];

    report_problem(rep, REPORT_UNKNOWN,
                   "%s: %s: unknown tensor%s%s: expected nothing, found %s %s",
                   s->file[i_file].name, t->name, *why ? ", " : "", why,
                   st_dtype_name(t->dtype),
                   st_shape_text(t->dim, t->n_dims, shape, sizeof(shape)));
}

/* The slot that a name belongs to, or NULL with the reason. */
static struct slot *find_slot(struct slots *s, const struct tensor_name *n,
                              const char **ret_why)
{
    const struct shape *h = s->shape;
    int i;

    *ret_why = "";
    if (n->layer >= h->n_layers + h->n_mtp) {
        *ret_why = "config.json has fewer layers";
        return NULL;
    }
    if (n->mtp_only && n->layer < h->n_layers) {
        *ret_why = "its layer is no MTP layer";
        return NULL;
    }
    i = s->at[n->layer + 1][n->role];
    if (i < 0) {
        *ret_why = n->layer >= 0 && h->layer[n->layer].moe
                       ? "config.json makes its layer a MoE layer"
                   : n->layer >= 0 ? "config.json makes its layer a dense one"
                                   : "";
        return NULL;
    }
    if (n->expert >= s->slot[i].desc.experts && n->expert >= 0) {
        *ret_why = "config.json has fewer experts";
        return NULL;
    }
    return &s->slot[i];
}

int slots_put(struct slots *s, const struct tensor_name *n, int i_file,
              const struct st_tensor *t, struct report *rep)
{
    const char *why = "";
    struct slot *slot = n->kind == NAME_TENSOR ? find_slot(s, n, &why) : NULL;
    struct slot_part *at;

    if (slot == NULL) {
        if (n->kind == NAME_UNKNOWN && strstr(t->name, "zero_point") != NULL) {
            why = "only symmetric quantisation is supported";
        }
        slot_unknown(s, i_file, t, why, rep);
        return 0;
    }
    if (n->expert >= 0 && slot->each == NULL) {
        slot->each = calloc((size_t)slot->desc.experts, sizeof(*slot->each));
        if (slot->each == NULL) {
            return -ENOMEM;
        }
        slot->names = n->experts;
    }
    at = n->expert >= 0 ? &slot->each[n->expert][n->part]
                        : &slot->whole[n->part];
    if (at->t != NULL) {
        report_problem(rep, REPORT_TWICE,
                       "%s: %s: given twice: %s of %s is the same tensor",
                       s->file[i_file].name, t->name, at->t->name,
                       s->file[at->file].name);
        return 0;
    }
    at->t = t;
    at->file = i_file;
    slot->n_found++;
    return 0;
}

/* ---- bytes --------------------------------------------------------------- */

struct slot_range slot_plane(const struct slot *slot, int expert, int plane)
{
    const struct form *form = &slot_forms[slot->scheme];
    enum part part = plane == 0   ? form->numbers
                     : plane == 1 ? form->scale
                                  : form->factor;
    const struct slot_part *p =
        slot->each != NULL ? &slot->each[expert][part] : &slot->whole[part];
    uint64_t bytes = p->t->end - p->t->begin;
    struct slot_range r = {.file = p->file, .off = p->t->begin};

    if (slot->each == NULL && slot->desc.experts > 0) {
        bytes /= (uint64_t)slot->desc.experts;
        r.off += bytes * (uint64_t)expert;
    }
    r.bytes = (size_t)bytes;
    return r;
}
