/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Decides in which form each weight is stored (model-spec 4), and checks every
 * part of it. Owns the texts about what is missing or does not fit. Reads no
 * bytes of tensors. One thread.
 *
 * What matters: the form is decided tensor by tensor from what is there (its
 * parts and their dtypes), never from what the configuration says about the
 * whole and never from a neighbour. So BF16 draft layers beside packed experts
 * are nothing special.
 */
#include "daemon/model/slots.h"

#include <stdio.h>
#include <string.h>

/* The shard that the index names for a missing tensor; NULL where its absence
 * may follow from a file that has been reported already. */
static const char *file_of_missing(const struct slots *s, const char *name)
{
    const char *file = json_string_value(json_object_get(s->weight_map, name));

    for (int i = 0; i < s->n_files; i++) {
        const struct st_file *f = &s->file[i];

        if (file == NULL ? !f->read : f->bad && strcmp(f->name, file) == 0) {
            return NULL;
        }
    }
    return file != NULL ? file : "no shard";
}

struct fill {
    const struct slots *s;
    struct slot *slot;
    struct report *rep;
    int expert; /* -1: the tensors hold all experts, or there are none */
    enum expert_names names;
    enum scheme likely; /* the form of the tensors beside a missing one */
    bool ok;
};

static void missing(struct fill *f, enum part part, enum st_dtype dtype,
                    const uint64_t *dim, int n_dims, const char *note)
{
    char name[SLOT_MAX_NAME], shape[160];
    const char *file;

    slot_name(f->s, f->slot, f->expert, f->names, part, name, sizeof(name));
    file = file_of_missing(f->s, name);
    f->ok = false;
    if (file != NULL) {
        report_problem(f->rep, REPORT_MISSING,
                       "%s: %s: missing: expected %s %s%s", file, name,
                       st_dtype_name(dtype),
                       st_shape_text(dim, n_dims, shape, sizeof(shape)), note);
    }
}

static bool is_vector(enum role role)
{
    switch (role) {
    case ROLE_NORM:
    case ROLE_ATTN_NORM:
    case ROLE_FFN_NORM:
    case ROLE_Q_NORM:
    case ROLE_K_NORM:
    case ROLE_ENORM:
    case ROLE_HNORM:
    case ROLE_MTP_NORM:
    case ROLE_ROUTER_BIAS:
        return true;
    default:
        return false;
    }
}

/* Which forms the kernels take where. */
static bool allowed(enum role role, enum scheme scheme)
{
    if (role == ROLE_EMBED) {
        return scheme == SCHEME_BF16;
    }
    if (role == ROLE_ROUTER || is_vector(role)) {
        return scheme == SCHEME_BF16 || scheme == SCHEME_F32;
    }
    return scheme != SCHEME_F32;
}

/* The sizes that a part must have. Returns their number. */
static int expected_dims(const struct fill *f, const struct form *form,
                         enum part part, uint64_t *dim)
{
    const struct kern_weight_desc *d = &f->slot->desc;
    uint64_t rows = (uint64_t)d->rows, cols = (uint64_t)d->cols;
    int n = 0;

    if (d->experts > 0 && f->expert < 0) {
        dim[n++] = (uint64_t)d->experts;
    }
    if (part == form->factor) {
        return n;
    }
    if (part == form->scale) {
        rows = (rows + (uint64_t)form->block_rows - 1) /
               (uint64_t)form->block_rows;
        cols = (cols + (uint64_t)form->block_cols - 1) /
               (uint64_t)form->block_cols;
    } else {
        cols /= (uint64_t)form->per_byte;
    }
    if (!is_vector(f->slot->role)) {
        dim[n++] = rows;
    }
    dim[n++] = cols;
    return n;
}

static bool same_dims(const struct st_tensor *t, const uint64_t *dim, int n)
{
    if (n == 0 && t->n_dims == 1 && t->dim[0] == 1) {
        return true; /* a scalar may be written as a list of one */
    }
    if (t->n_dims != n) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (t->dim[i] != dim[i]) {
            return false;
        }
    }
    return true;
}

/* One part of a form: it is there, of that dtype, of that shape. */
static void check_part(struct fill *f, const struct slot_part *parts,
                       const struct form *form, enum part part,
                       enum st_dtype dtype, enum st_dtype alt)
{
    const struct st_tensor *t = parts[part].t;
    uint64_t dim[3];
    char expected[160], found[160];
    int n = expected_dims(f, form, part, dim);

    if (t == NULL) {
        missing(f, part, dtype, dim, n, "");
        return;
    }
    if (t->dtype != dtype && t->dtype != alt) {
        report_problem(f->rep, REPORT_MISMATCH,
                       "%s: %s: wrong dtype: expected %s, found %s",
                       f->s->file[parts[part].file].name, t->name,
                       st_dtype_name(dtype), st_dtype_name(t->dtype));
        f->ok = false;
    }
    if (!same_dims(t, dim, n)) {
        report_problem(f->rep, REPORT_MISMATCH,
                       "%s: %s: wrong shape: expected %s, found %s",
                       f->s->file[parts[part].file].name, t->name,
                       st_shape_text(dim, n, expected, sizeof(expected)),
                       st_shape_text(t->dim, t->n_dims, found, sizeof(found)));
        f->ok = false;
    }
}

/* The form that these parts are in: by the part with the numbers and the dtype
 * of both it and its scales. Without scales, the likely one if it may be that,
 * else the first that it may be. -1: none. */
static int choose_form(const struct fill *f, const struct slot_part *parts)
{
    int guess = -1;

    for (int i = 0; i < N_SCHEMES; i++) {
        const struct form *form = &slot_forms[i];
        const struct st_tensor *t = parts[form->numbers].t;
        const struct st_tensor *scale;

        if (t == NULL || t->dtype != form->numbers_dtype ||
            !allowed(f->slot->role, (enum scheme)i)) {
            continue;
        }
        if (form->scale == NO_PART) {
            return i;
        }
        scale = parts[form->scale].t;
        if (scale != NULL && (scale->dtype == form->scale_dtype ||
                              scale->dtype == form->scale_alt)) {
            return i;
        }
        if (guess < 0 || i == (int)f->likely) {
            guess = i;
        }
    }
    return guess;
}

/* Nothing, or scales without what they scale. */
static void missing_numbers(struct fill *f, const char *note)
{
    const struct form *form = &slot_forms[f->likely];
    uint64_t dim[3];
    int n = expected_dims(f, form, form->numbers, dim);

    missing(f, form->numbers, form->numbers_dtype, dim, n, note);
}

static void no_form(struct fill *f, const struct slot_part *parts)
{
    enum role role = f->slot->role;
    const struct slot_part *p = parts[PART_WEIGHT].t != NULL
                                    ? &parts[PART_WEIGHT]
                                    : &parts[PART_PACKED];

    if (p->t == NULL) {
        missing_numbers(f, "");
        return;
    }
    f->ok = false;
    report_problem(f->rep, REPORT_MISMATCH,
                   "%s: %s: wrong dtype: expected %s, found %s",
                   f->s->file[p->file].name, p->t->name,
                   p == &parts[PART_PACKED]   ? "U8"
                   : role == ROLE_ROUTER_BIAS ? "F32"
                   : !allowed(role, SCHEME_FP8)
                       ? "BF16"
                       : "BF16, F8_E4M3 with scales or U8 with scales",
                   st_dtype_name(p->t->dtype));
}

/* Rows of scales must end where a row ends. */
static void check_blocks(struct fill *f, const struct slot_part *parts,
                         const struct form *form)
{
    if (form->block_rows == 1 && f->slot->desc.cols % form->block_cols != 0) {
        report_problem(f->rep, REPORT_MISMATCH,
                       "%s: %s: %s needs columns in blocks of %d, found %d",
                       f->s->file[parts[form->numbers].file].name,
                       parts[form->numbers].t->name, form->name,
                       form->block_cols, f->slot->desc.cols);
        f->ok = false;
    }
}

/* One matrix (or one fused stack of them): finds its form, checks every part.
 * Returns the form, -1 where there is none. */
static int fill_parts(struct fill *f, const struct slot_part *parts)
{
    int i = choose_form(f, parts);
    const struct form *form;

    if (i < 0) {
        no_form(f, parts);
        return -1;
    }
    form = &slot_forms[i];
    check_blocks(f, parts, form);
    check_part(f, parts, form, form->numbers, form->numbers_dtype,
               form->numbers_dtype);
    if (form->scale != NO_PART) {
        check_part(f, parts, form, form->scale, form->scale_dtype,
                   form->scale_alt);
    }
    if (form->factor != NO_PART) {
        check_part(f, parts, form, form->factor, ST_F32, ST_F32);
    }
    for (int p = 0; p < N_PARTS; p++) {
        if (parts[p].t != NULL && p != (int)form->numbers &&
            p != (int)form->scale && p != (int)form->factor) {
            char why[80];

            snprintf(why, sizeof(why), "%s has no such part", form->name);
            slot_unknown(f->s, parts[p].file, parts[p].t, why, f->rep);
            f->ok = false;
        }
    }
    return i;
}

/* Nothing of the slot was found: one line, also for a few hundred experts. */
static void fill_none(struct fill *f)
{
    char note[48] = "";

    if (f->slot->desc.experts > 0 && f->s->expert_names != EXPERTS_FUSED) {
        f->expert = 0;
        f->names = f->s->expert_names;
        snprintf(note, sizeof(note), ", and so are all %d experts",
                 f->slot->desc.experts);
    }
    missing_numbers(f, note);
}

/* Expert by expert: every one there, all in the same form. */
static void fill_each(struct fill *f)
{
    struct slot *slot = f->slot;
    int first = -1;

    f->names = slot->names;
    for (int e = 0; e < slot->desc.experts; e++) {
        const struct slot_part *parts = slot->each[e];
        int i;

        f->expert = e;
        i = fill_parts(f, parts);
        if (first < 0 && i >= 0) {
            first = i;
            f->likely = (enum scheme)i;
        }
        if (i >= 0 && i != first) {
            enum part part = slot_forms[i].numbers;

            report_problem(f->rep, REPORT_MISMATCH,
                           "%s: %s: expected %s like the experts before it, "
                           "found %s",
                           f->s->file[parts[part].file].name,
                           parts[part].t->name, scheme_name(f->likely),
                           scheme_name((enum scheme)i));
            f->ok = false;
        }
    }
    slot->scheme = f->likely;
}

void slot_fill(const struct slots *s, struct slot *slot, struct report *rep)
{
    struct fill f = {
        .s = s,
        .slot = slot,
        .rep = rep,
        .expert = -1,
        .names = EXPERTS_FUSED,
        .likely = role_is_expert(slot->role)       ? s->expert_scheme
                  : slot->role == ROLE_ROUTER_BIAS ? SCHEME_F32
                                                   : SCHEME_BF16,
        .ok = true,
    };
    bool whole = false;

    for (int p = 0; p < N_PARTS; p++) {
        whole = whole || slot->whole[p].t != NULL;
    }
    if (slot->n_found == 0) {
        fill_none(&f);
    } else if (slot->each == NULL) {
        int i = fill_parts(&f, slot->whole);

        slot->scheme = i >= 0 ? (enum scheme)i : SCHEME_BF16;
    } else if (whole) {
        char name[SLOT_MAX_NAME];

        report_problem(rep, REPORT_TWICE,
                       "%s: given both as one tensor and expert by expert",
                       slot_text(s, slot, name, sizeof(name)));
        f.ok = false;
    } else {
        fill_each(&f);
    }
    if (f.ok) {
        if (slot->role != ROLE_ROUTER_BIAS) {
            slot->desc.dtype = slot_forms[slot->scheme].dtype;
        }
        slot->filled = true;
    }
}
