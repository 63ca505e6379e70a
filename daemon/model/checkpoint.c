/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Opens a checkpoint folder: config.json, the index, the headers of the shards;
 * sorts every tensor into its slot and reports all that is wrong at once. Owns
 * the descriptors and mappings of the shards until checkpoint_close. Reads no
 * weights. One thread.
 *
 * What matters: strict in both directions. Every weight that config.json asks
 * for is there, in a form that the kernels take; every tensor that is there is
 * used, or is on the short list of those known to be of no use here (vision,
 * scales of a quantised KV cache), and the notes say how many of those.
 */
#include "daemon/model/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "daemon/model/compact.h"
#include "daemon/model/opening.h"
#include "daemon/model/quant.h"
#include "daemon/model/watch.h"

/* ---- tensors ------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = strcmp(x->t->name, y->t->name);

    return c != 0 ? c : x->file - y->file;
}

static int list_tensors(struct opening *o)
{
    struct checkpoint *ck = o->ck;
    size_t n = 0;

    for (int i = 0; i < ck->n_files; i++) {
        n += (size_t)ck->file[i].n_tensors;
    }
    o->entry = calloc(n + 1, sizeof(*o->entry));
    if (o->entry == NULL) {
        return -ENOMEM;
    }
    for (int i = 0; i < ck->n_files; i++) {
        for (int j = 0; j < ck->file[i].n_tensors; j++) {
            o->entry[o->n_entries++] =
                (struct entry){.t = &ck->file[i].tensor[j], .file = i};
        }
    }
    qsort(o->entry, n, sizeof(*o->entry), by_name);
    return 0;
}

/* The first entry of that name, or NULL. */
static const struct entry *find_entry(const struct opening *o, const char *name)
{
    int lo = 0, hi = o->n_entries;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;

        if (strcmp(o->entry[mid].t->name, name) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < o->n_entries && strcmp(o->entry[lo].t->name, name) == 0
               ? &o->entry[lo]
               : NULL;
}

/* How names are spelt here, for the texts about those that are missing. */
static void learn_names(struct slots *s, const struct tensor_name *n,
                        const char *name)
{
    bool mtp = n->layer >= s->shape->n_layers;

    if (n->layer >= 0 && n->n_prefix < sizeof(s->prefix)) {
        char *prefix = mtp ? s->prefix_mtp : s->prefix;

        memcpy(prefix, name, n->n_prefix);
        prefix[n->n_prefix] = '\0';
    }
    if (role_is_expert(n->role)) {
        s->expert_names = n->experts;
        if (n->part == PART_PACKED) {
            s->expert_scheme = SCHEME_MXFP4;
        } else if (n->part == PART_SCALE_INV) {
            s->expert_scheme = SCHEME_FP8;
        } else if (n->part == PART_SCALE_2) {
            s->expert_scheme = SCHEME_NVFP4;
        } else if (n->part == PART_WEIGHT && n->experts == EXPERTS_BARE) {
            s->expert_scheme = SCHEME_MXFP4_QUARK;
        }
    }
}

static int place_tensors(struct opening *o)
{
    struct slots *s = &o->ck->slots;
    int r = slots_init(s, &o->ck->shape);
    struct tensor_name n;
    const char *name;
    json_t *v;

    s->file = o->ck->file;
    s->n_files = o->ck->n_files;
    s->weight_map = o->ck->weight_map;
    json_object_foreach((json_t *)s->weight_map, name, v)
    {
        name_parse(name, &n);
        if (n.kind == NAME_TENSOR) {
            learn_names(s, &n, name);
        }
    }
    for (int i = 0; r == 0 && i < o->n_entries; i++) {
        const struct st_tensor *t = o->entry[i].t;

        name_parse(t->name, &n);
        if (s->weight_map != NULL &&
            json_object_get(s->weight_map, t->name) == NULL) {
            o->unindexed = o->n_unindexed++ == 0 ? t->name : o->unindexed;
        }
        if (n.kind == NAME_VISION) {
            o->n_vision++;
        } else if (n.kind == NAME_INERT) {
            o->inert = o->n_inert++ == 0 ? t->name : o->inert;
        } else if (n.kind != NAME_SHAPE) {
            if (n.kind == NAME_TENSOR) {
                learn_names(s, &n, t->name);
            }
            r = slots_put(s, &n, o->entry[i].file, t, &o->rep);
        }
    }
    return r;
}

/* A name that the index has and the shards do not, or elsewhere. */
static void check_indexed(struct opening *o, const char *name, const char *file)
{
    struct checkpoint *ck = o->ck;
    const struct entry *e = find_entry(o, name);
    struct tensor_name n;
    bool other = false;

    for (int i = 0; i < ck->n_files; i++) {
        if (ck->file[i].bad && strcmp(ck->file[i].name, file) == 0) {
            return; /* reported */
        }
    }
    for (const struct entry *p = e; p != NULL && p < o->entry + o->n_entries &&
                                    strcmp(p->t->name, name) == 0;
         p++) {
        if (strcmp(ck->file[p->file].name, file) == 0) {
            return;
        }
        other = true;
    }
    name_parse(name, &n);
    if (other) {
        report_problem(&o->rep, REPORT_INDEX,
                       CHECKPOINT_INDEX ": %s: expected in %s, found in %s",
                       name, file, ck->file[e->file].name);
    } else if (n.kind == NAME_UNKNOWN ||
               (n.kind == NAME_TENSOR && n.layer >= ck->shape.n_layers)) {
        report_problem(&o->rep, REPORT_INDEX,
                       CHECKPOINT_INDEX
                       ": %s: expected in %s, found in no shard",
                       name, file);
    } /* else the slot says that it is missing, and with which shape */
}

static void check_index(struct opening *o)
{
    const char *name;
    json_t *v;

    json_object_foreach((json_t *)o->ck->weight_map, name, v)
    {
        const char *file = json_string_value(v);

        if (file != NULL && folder_is_shard(file)) {
            check_indexed(o, name, file);
        }
    }
    if (o->n_unindexed > 0) {
        report_note(&o->rep,
                    "%d tensors are in the shards and not in the index "
                    "(the first is %s): the headers count",
                    o->n_unindexed, o->unindexed);
    }
}

/* ---- the trunk and the MTP modules --------------------------------------- */

static int found_in(const struct slots *s, int first_layer, int last_layer)
{
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        if (s->slot[i].layer >= first_layer && s->slot[i].layer <= last_layer) {
            n += s->slot[i].n_found;
        }
    }
    return n;
}

/* False where a shard's tensors are not known: what it may hold is not missing.
 */
static bool all_read(const struct checkpoint *ck)
{
    for (int i = 0; i < ck->n_files; i++) {
        if (!ck->file[i].read) {
            return false;
        }
    }
    return true;
}

/* The modules that are there, from the first on; says what follows. */
static int count_mtp(struct opening *o)
{
    const struct shape *h = &o->ck->shape;
    int n = 0;

    while (n < h->n_mtp &&
           found_in(&o->ck->slots, h->n_layers + n, h->n_layers + n) > 0) {
        n++;
    }
    if (!all_read(o->ck)) {
        return n;
    }
    if (n < h->n_mtp) {
        char line[256];

        snprintf(line, sizeof(line),
                 "config.json names %d MTP layers, but layer %d has no tensor",
                 h->n_mtp, h->n_layers + n);
        if (o->ck->conf.drafts_required) {
            report_problem(&o->rep, REPORT_MISSING,
                           "%s: drafting is required by the configuration",
                           line);
        } else if (n == 0) {
            report_note(&o->rep, "%s: drafting is off", line);
        } else {
            report_note(&o->rep, "%s: at most %d drafts", line, n);
        }
    } else if (n == 0 && o->ck->conf.drafts_required) {
        report_problem(&o->rep, REPORT_MISSING,
                       "config.json: num_nextn_predict_layers: expected 1 to "
                       "%d (drafting is required by the configuration), "
                       "found 0",
                       SHAPE_MAX_MTP);
    }
    return n;
}

/* A folder with nothing of the trunk is another kind of checkpoint; hundreds of
 * missing tensors would only hide that. */
static bool is_other_kind(struct opening *o)
{
    const struct shape *h = &o->ck->shape;
    struct slots *s = &o->ck->slots;

    if (!all_read(o->ck) || found_in(s, 0, h->n_layers - 1) > 0) {
        return false;
    }
    report_problem(&o->rep, REPORT_FOLDER,
                   found_in(s, h->n_layers, INT_MAX) > 0
                       ? "%s: holds MTP layers only: a draft checkpoint, not "
                         "a model"
                       : "%s: holds no layer of the model in config.json",
                   o->ck->conf.path);
    return true;
}

static void fill_slots(struct opening *o)
{
    struct checkpoint *ck = o->ck;
    struct slots *s = &ck->slots;
    int n_mtp = count_mtp(o);

    if (is_other_kind(o)) {
        return;
    }
    for (int i = 0; i < s->n; i++) {
        if (s->slot[i].layer < ck->shape.n_layers + n_mtp) {
            slot_fill(s, &s->slot[i], &o->rep);
        }
    }
    if (n_mtp > 0 && ck->conf.drafts == 0) {
        report_note(&o->rep, "the MTP layers are not loaded: drafts = 0");
        n_mtp = 0;
    }
    ck->shape.n_mtp = n_mtp;
}

static void note_unused(struct opening *o)
{
    if (o->n_vision > 0) {
        report_note(&o->rep, "%d vision tensors are not used: text only",
                    o->n_vision);
    }
    if (o->n_inert > 0) {
        report_note(&o->rep,
                    "%d quantisation parameters of attention and activations "
                    "(the first is %s) are not used: the KV cache and the "
                    "activations stay BF16",
                    o->n_inert, o->inert);
    }
}

/* ---- identity ------------------------------------------------------------ */

/* Three samples of a shard's data tell fine-tunes of one shape apart. */
static void hash_samples(XXH3_state_t *x, const struct st_file *f)
{
    unsigned char buf[4096];
    uint64_t data = f->size - f->data;

    for (int i = 0; i < 3; i++) {
        size_t n = data < sizeof(buf) ? (size_t)data : sizeof(buf);
        uint64_t at = f->data + (data - n) / 2 * (uint64_t)i;

        if (st_read(f, at, buf, n) == 0) {
            XXH3_64bits_update(x, buf, n);
        }
    }
}

/* Of the configuration and of every tensor's name, dtype and shape, whichever
 * shard it lies in. */
static int take_fingerprint(struct opening *o)
{
    XXH3_state_t *x = XXH3_createState();

    if (x == NULL) {
        return -ENOMEM;
    }
    XXH3_64bits_reset(x);
    XXH3_64bits_update(x, o->config, o->n_config);
    for (int i = 0; i < o->n_entries; i++) {
        const struct st_tensor *t = o->entry[i].t;

        XXH3_64bits_update(x, t->name, strlen(t->name) + 1);
        XXH3_64bits_update(x, &t->dtype, sizeof(t->dtype));
        XXH3_64bits_update(x, t->dim, (size_t)t->n_dims * sizeof(t->dim[0]));
    }
    for (int i = 0; i < o->ck->n_files; i++) {
        hash_samples(x, &o->ck->file[i]);
    }
    o->ck->fingerprint = XXH3_64bits_digest(x);
    XXH3_freeState(x);
    return 0;
}

/* ---- the whole ----------------------------------------------------------- */

static int open_all(struct opening *o)
{
    int r = folder_open(o);

    if (r == 0) {
        r = folder_open_shards(o);
    }
    if (r == 0) {
        r = list_tensors(o);
    }
    if (r == 0) {
        r = place_tensors(o);
    }
    if (r < 0) {
        return r;
    }
    if (o->ck->weight_map != NULL) {
        check_index(o);
    }
    fill_slots(o);
    note_unused(o);
    if (o->rep.n_problems == 0) {
        quant_check(o->ck->quant, &o->ck->slots, &o->rep);
    }
    r = report_status(&o->rep);
    return r < 0 ? r : take_fingerprint(o);
}

int checkpoint_open(const struct model_conf *c, struct model_report *rep,
                    struct checkpoint **ret)
{
    struct opening o = {.ck = calloc(1, sizeof(*o.ck))};
    int r;

    if (o.ck == NULL) {
        return -ENOMEM;
    }
    report_init(&o.rep);
    o.ck->conf = *c;
    o.ck->dir = -1;
    r = open_all(&o);
    report_finish(&o.rep, rep);
    for (int i = 0; i < o.n_names; i++) {
        free(o.name[i]);
    }
    free(o.name);
    free(o.entry);
    free(o.config);
    if (r < 0) {
        checkpoint_close(o.ck);
        return r;
    }
    *ret = o.ck;
    return 0;
}

void checkpoint_close(struct checkpoint *ck)
{
    if (ck == NULL) {
        return;
    }
    for (int i = 0; i < ck->n_files; i++) {
        if (ck->map[i].at != NULL) {
            watch_remove(ck->map[i].at);
            munmap(ck->map[i].at, ck->map[i].bytes);
        }
        st_close(&ck->file[i]);
    }
    compact_close(ck->compact);
    free(ck->map);
    free(ck->file);
    slots_finish(&ck->slots);
    json_decref(ck->index);
    json_decref(ck->quant);
    if (ck->dir >= 0) {
        close(ck->dir);
    }
    free(ck);
}

const struct shape *checkpoint_shape(const struct checkpoint *ck)
{
    return &ck->shape;
}

bool checkpoint_wants(const struct checkpoint *ck, const struct slot *slot)
{
    return slot->filled && slot->layer < ck->shape.n_layers + ck->shape.n_mtp;
}

/* What the routed experts are in; a model without them is BF16. */
static const char *dialect(const struct checkpoint *ck)
{
    for (int i = 0; i < ck->slots.n; i++) {
        const struct slot *slot = &ck->slots.slot[i];

        if (role_is_expert(slot->role) && slot->filled) {
            return scheme_name(slot->scheme);
        }
    }
    return scheme_name(SCHEME_BF16);
}

void checkpoint_info(const struct checkpoint *ck, struct model_info *ret)
{
    const struct shape *h = &ck->shape;
    int asked = ck->conf.max_model_len;

    memset(ret, 0, sizeof(*ret));
    snprintf(ret->family, sizeof(ret->family), "%s", h->family);
    snprintf(ret->dialect, sizeof(ret->dialect), "%s", dialect(ck));
    ret->fingerprint = ck->fingerprint;
    ret->vocab = h->vocab;
    ret->hidden = h->hidden;
    ret->n_layers = h->n_layers;
    ret->n_mtp = h->n_mtp;
    ret->window = h->window;
    ret->max_model_len =
        asked > 0 && asked < h->max_model_len ? asked : h->max_model_len;
    ret->n_eos = h->n_eos;
    memcpy(ret->eos, h->eos, sizeof(ret->eos));
    ret->bos = h->bos;
}

int checkpoint_verify(const struct checkpoint *ck, char *why, size_t n)
{
    for (int i = 0; i < ck->n_files; i++) {
        const struct st_file *f = &ck->file[i];
        struct stat st;

        if (fstat(f->fd, &st) < 0) {
            snprintf(why, n, "%s: %s", f->name, strerror(errno));
            return -ESTALE;
        }
        if ((uint64_t)st.st_size != f->size) {
            snprintf(why, n,
                     "%s changed under us: it had %" PRIu64
                     " bytes, now it has %lld",
                     f->name, f->size, (long long)st.st_size);
            return -ESTALE;
        }
        if (st.st_mtim.tv_sec != f->mtime.tv_sec ||
            st.st_mtim.tv_nsec != f->mtime.tv_nsec) {
            snprintf(why, n, "%s changed under us: it was written to", f->name);
            return -ESTALE;
        }
    }
    return 0;
}
