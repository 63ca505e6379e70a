/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_MODEL_WEIGHTS_H
#define STEPD_DAEMON_MODEL_WEIGHTS_H

/*
 * A checkpoint folder, and the weights of its model.
 *
 * checkpoint_open reads config.json and the headers of the shards, nothing
 * else: it resolves the shape, gives every tensor its place or refuses it, and
 * writes all that is wrong into one report. weights_load then hands the bytes
 * to a backend, in place from the mapped files where the mode allows it.
 *
 *     struct checkpoint *ck;
 *     struct weights *w;
 *     r = checkpoint_open(conf, report, &ck);   -EBADMSG: see report
 *     r = weights_load(ck, kern, &w);           progress from conf
 *     ... w->layer[i].q, checkpoint_shape(ck) ...
 *     weights_destroy(w);
 *     checkpoint_close(ck);                     after the weights: they map it
 */

#include <stddef.h>
#include <stdint.h>

#include "daemon/model/model.h"
#include "daemon/model/shape.h"
#include "kernels/kernels.h"

struct checkpoint;

/* [n][m] is a matrix of n rows and m columns, as linear takes it. Members that
 * a layer does not have are NULL. */
struct weights_layer {
    struct kern_weight *attn_norm; /* input_layernorm [1][hidden] */
    struct kern_weight *q;         /* [n_head * 128][hidden] */
    struct kern_weight *k;         /* [n_kv_head * 128][hidden] */
    struct kern_weight *v;         /* [n_kv_head * 128][hidden] */
    struct kern_weight *g;         /* [n_head][hidden]; NULL: no gate */
    struct kern_weight *q_norm;    /* [1][128] */
    struct kern_weight *k_norm;    /* [1][128] */
    struct kern_weight *o;         /* [hidden][n_head * 128] */
    struct kern_weight *ffn_norm;  /* post_attention_layernorm [1][hidden] */
    /* a dense layer */
    struct kern_weight *gate; /* [width][hidden] */
    struct kern_weight *up;   /* [width][hidden] */
    struct kern_weight *down; /* [hidden][width] */
    /* a MoE layer; experts: one kern_weight holds all of them */
    struct kern_weight *router;      /* [n_expert][hidden] */
    struct kern_weight *router_bias; /* [1][n_expert] F32, or NULL */
    struct kern_weight *expert_gate; /* n_expert x [expert_width][hidden] */
    struct kern_weight *expert_up;   /* n_expert x [expert_width][hidden] */
    struct kern_weight *expert_down; /* n_expert x [hidden][expert_width] */
    struct kern_weight *shared_gate; /* [shared_width][hidden] */
    struct kern_weight *shared_up;   /* [shared_width][hidden] */
    struct kern_weight *shared_down; /* [hidden][shared_width] */
};

struct weights_mtp {
    struct kern_weight *enorm; /* [1][hidden], of the embedding */
    struct kern_weight *hnorm; /* [1][hidden], of the level below */
    struct kern_weight
        *eh_proj;               /* [hidden][2 * hidden]: embedding half first */
    struct weights_layer block; /* shape: layer[n_layers + j] */
    struct kern_weight *norm;   /* [1][hidden], before the head */
    struct kern_weight *head;   /* [vocab][hidden], its own */
};

struct weights {
    struct kern *kern;
    struct kern_weight *embed; /* [vocab][hidden] */
    struct kern_weight *norm;  /* [1][hidden], before the head */
    struct kern_weight *head;  /* [vocab][hidden] */
    int n_layers;
    struct weights_layer layer[SHAPE_MAX_LAYERS];
    int n_mtp; /* modules loaded: shape.n_mtp */
    struct weights_mtp mtp[SHAPE_MAX_MTP];
};

/* Opens and checks the folder c->path; c must outlive the checkpoint. 0: it
 * would load. -EBADMSG: rep lists the problems. -ENOENT, -ENOTDIR, -EACCES: the
 * folder itself or its config.json, with a problem that says so. */
int checkpoint_open(const struct model_conf *c, struct model_report *rep,
                    struct checkpoint **ret);
void checkpoint_close(struct checkpoint *ck); /* NULL is fine */

/* As config.json says, except that n_mtp counts the modules whose tensors are
 * all there. */
const struct shape *checkpoint_shape(const struct checkpoint *ck);

/* Fills family, dialect, fingerprint and all that comes from the shape; leaves
 * device and memory (plan.h) alone. */
void checkpoint_info(const struct checkpoint *ck, struct model_info *ret);

/* Makes the weights in k and fills them, by conf.weights: MODEL_MAP and
 * MODEL_LOCK map the shards in place, MODEL_COPY reads them into anonymous huge
 * pages, MODEL_COMPACT maps and packs BF16 matrices (compact.h). -EBADMSG with
 * the problem in rep: a form that k does not compute with, a scale byte that
 * cannot be computed exactly, a file that changed. -E2BIG likewise: MODEL_LOCK,
 * and the limit does not allow it. What progress returned, if negative. */
int weights_load(struct checkpoint *ck, struct kern *k,
                 struct model_report *rep, struct weights **ret);
void weights_destroy(struct weights *w); /* NULL is fine */

/* 0 while the shards are the files that were opened (size and mtime of the open
 * descriptors); -ESTALE names the file in why. A rename over a shard is
 * harmless: the opened file lives on. */
int checkpoint_verify(const struct checkpoint *ck, char *why, size_t n);

/* Installs the handler of SIGBUS that names the shard and the offset whose page
 * could not be read, on stderr, and ends the process with exit code 70. Once a
 * process, before weights_load; -errno of sigaction. */
int weights_catch_sigbus(void);

#endif
