/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Synthetic checkpoints: which tensors there are, how they are called, the
 * files. The numbers come from synth_numbers.c. Everything is planned first
 * (names, sizes, shards), then written from front to back, a few MiB at a time,
 * so that the real model's layers need no memory to speak of.
 */
#include "tests/synth.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#define BUFFER ((size_t)4 << 20)

/* A tensor of a file: a plane of all experts of a matrix, or of one. */
struct tensor {
    char name[256];
    const char *dtype;
    int n_dims;
    uint64_t dim[4];
    uint64_t bytes;
    int matrix; /* -1: zeros */
    int plane, expert, n_experts;
    bool unindexed;
};

struct plan {
    const struct synth *s;
    int n_matrices, n_tensors;
    struct synth_matrix *matrix;
    struct tensor *tensor;
};

bool synth_preset(struct synth *s, const char *name)
{
    static const struct {
        const char *name;
        int hidden, vocab, layers, dense, full_every, full, sliding, kv;
        int window, len, experts, top_k, width, dense_width, shards;
    } presets[] = {
        {"micro", 96, 512, 3, 1, 2, 4, 6, 2, 16, 4096, 8, 3, 160, 224, 2},
        {"small", 1024, 8192, 8, 3, 4, 16, 24, 8, 512, 32768, 32, 8, 512, 2816,
         2},
        {"slice", 4096, 16384, 5, 1, 4, 64, 96, 8, 512, 262144, 288, 8, 1280,
         11264, 4},
        {"real", 4096, 128896, 45, 3, 4, 64, 96, 8, 512, 262144, 288, 8, 1280,
         11264, 24},
    };

    memset(s, 0, sizeof(*s));
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            s->dialect = SYNTH_MXFP4;
            s->seed = 1234;
            s->hidden = presets[i].hidden;
            s->vocab = presets[i].vocab;
            s->n_layers = presets[i].layers;
            s->n_mtp = 3;
            s->n_dense = presets[i].dense;
            s->full_every = presets[i].full_every;
            s->n_head_full = presets[i].full;
            s->n_head_sliding = presets[i].sliding;
            s->n_kv_head = presets[i].kv;
            s->window = presets[i].window;
            s->max_len = presets[i].len;
            s->n_expert = presets[i].experts;
            s->top_k = presets[i].top_k;
            s->expert_width = presets[i].width;
            s->shared_width = presets[i].width;
            s->dense_width = presets[i].dense_width;
            s->limit_routed = 7;
            s->limit_shared = 16;
            s->n_shards = presets[i].shards;
            s->first_id = 3;
            s->accept[0] = s->accept[1] = s->accept[2] = 0.8;
            return true;
        }
    }
    return false;
}

/* ---- what there is ------------------------------------------------------- */

/* Room for one more, doubled where it is full. */
static void *grow(void *list, int n, size_t size)
{
    if (n > 0 && (n & (n - 1)) != 0) {
        return list;
    }
    list = realloc(list, (n > 0 ? 2 * (size_t)n : 1) * size);
    if (list == NULL) {
        abort();
    }
    return list;
}

static struct synth_matrix *add_matrix(struct plan *p, enum synth_kind kind,
                                       int layer, int rows, int cols,
                                       double gain)
{
    struct synth_matrix *m;

    p->matrix = grow(p->matrix, p->n_matrices, sizeof(*p->matrix));
    m = &p->matrix[p->n_matrices++];
    memset(m, 0, sizeof(*m));
    m->kind = kind;
    m->layer = layer;
    m->module = layer >= p->s->n_layers ? layer - p->s->n_layers + 1 : 0;
    m->rows = rows;
    m->cols = cols;
    m->gain = gain;
    return m;
}

static struct tensor *add_tensor(struct plan *p, const char *dtype)
{
    struct tensor *t;

    p->tensor = grow(p->tensor, p->n_tensors, sizeof(*p->tensor));
    t = &p->tensor[p->n_tensors++];
    memset(t, 0, sizeof(*t));
    t->dtype = dtype;
    t->matrix = -1;
    return t;
}

/* ModelOpt's export puts the trunk under model.language_model. */
static const char *prefix(const struct plan *p, int layer)
{
    return p->s->dialect == SYNTH_NVFP4 && layer < p->s->n_layers
               ? "model.language_model."
               : "model.";
}

/* "model.layers.3.": with what MTP layers put behind it. */
static void layer_name(const struct plan *p, int layer, const char *module,
                       char *ret, size_t n)
{
    bool mtp = layer >= p->s->n_layers;
    const char *infix = "";

    if (mtp && p->s->mtp_names == SYNTH_MTP_BLOCK &&
        strncmp(module, "e", 1) != 0 && strncmp(module, "h", 1) != 0 &&
        strncmp(module, "shared_head", 11) != 0) {
        infix = "mtp_block.";
    } else if (mtp && p->s->mtp_names == SYNTH_MTP_PUBLISHED &&
               strncmp(module, "shared_head", 11) == 0) {
        infix = "transformer.";
    }
    snprintf(ret, n, "%slayers.%d.%s%s", prefix(p, layer), layer, infix,
             module);
}

static const char *form_dtype(enum synth_form f, int plane)
{
    switch (f) {
    case SYNTH_AS_F32:
        return "F32";
    case SYNTH_AS_MXFP4:
        return "U8";
    case SYNTH_AS_FP8:
        return plane == 0 ? "F8_E4M3" : "F32";
    case SYNTH_AS_NVFP4:
    case SYNTH_AS_NVFP4_DIV:
        return plane == 0 ? "U8" : plane == 1 ? "F8_E4M3" : "F32";
    case SYNTH_AS_BF16:
        break;
    }
    return "BF16";
}

static const char *form_part(const struct plan *p, enum synth_form f, int plane)
{
    bool ct = p->s->dialect == SYNTH_MXFP4 || p->s->dialect == SYNTH_NVFP4_CT;

    if (f <= SYNTH_AS_F32 || (plane == 0 && !ct)) {
        return ".weight";
    }
    switch (plane) {
    case 0:
        return ".weight_packed";
    case 1:
        return f == SYNTH_AS_FP8 ? ".weight_scale_inv" : ".weight_scale";
    default:
        return f == SYNTH_AS_NVFP4 ? ".weight_scale_2" : ".weight_global_scale";
    }
}

static int n_planes(enum synth_form f)
{
    return f <= SYNTH_AS_F32 ? 1 : f <= SYNTH_AS_FP8 ? 2 : 3;
}

/* One tensor of the matrix added last. */
static void add_plane(struct plan *p, enum synth_form form, int plane,
                      int expert, const char *name)
{
    const struct synth_matrix *m = &p->matrix[p->n_matrices - 1];
    struct tensor *t = add_tensor(p, form_dtype(form, plane));
    size_t row = synth_row_bytes(p->s, m, plane);
    int rows = synth_plane_rows(p->s, m, plane);
    size_t element = strcmp(t->dtype, "BF16") == 0  ? 2
                     : strcmp(t->dtype, "F32") == 0 ? 4
                                                    : 1;
    bool vector = m->kind == SYNTH_NORM || m->kind == SYNTH_BIAS;

    snprintf(t->name, sizeof(t->name), "%s%s", name,
             m->kind == SYNTH_BIAS ? "" : form_part(p, form, plane));
    t->matrix = p->n_matrices - 1;
    t->plane = plane;
    t->expert = expert >= 0 ? expert : 0;
    t->n_experts = expert < 0 && m->experts > 0 ? m->experts : 1;
    if (expert < 0 && m->experts > 0) {
        t->dim[t->n_dims++] = (uint64_t)m->experts;
    }
    if (plane == 2) {
        if (expert >= 0 || m->experts == 0) { /* as compressed-tensors does */
            t->dim[t->n_dims++] = 1;
        }
    } else {
        if (!vector) {
            t->dim[t->n_dims++] = (uint64_t)rows;
        }
        t->dim[t->n_dims++] = row / element;
    }
    t->bytes = (uint64_t)t->n_experts * (uint64_t)rows * row;
    t->unindexed = form == SYNTH_AS_FP8 && plane == 1;
}

static enum synth_form dialect_form(enum synth_dialect d)
{
    static const enum synth_form forms[SYNTH_N_DIALECTS] = {
        [SYNTH_BF16] = SYNTH_AS_BF16,
        [SYNTH_MXFP4] = SYNTH_AS_MXFP4,
        [SYNTH_FP8] = SYNTH_AS_FP8,
        [SYNTH_NVFP4] = SYNTH_AS_NVFP4,
        [SYNTH_NVFP4_CT] = SYNTH_AS_NVFP4_DIV,
        [SYNTH_QUARK] = SYNTH_AS_MXFP4,
    };

    return forms[d];
}

/* All tensors of the matrix added last, which is one matrix. */
static void add_single(struct plan *p, const char *name)
{
    struct synth_matrix *m = &p->matrix[p->n_matrices - 1];
    enum synth_form form;

    snprintf(m->base, sizeof(m->base), "%s", name);
    form = p->s->twin && m->form > SYNTH_AS_F32 ? SYNTH_AS_BF16 : m->form;
    for (int i = 0; i < n_planes(form); i++) {
        add_plane(p, form, i, -1, name);
    }
}

/* All tensors of the experts added last, fused or one by one. */
static void add_experts(struct plan *p, int layer, const char *proj)
{
    const struct synth *s = p->s;
    struct synth_matrix *m = &p->matrix[p->n_matrices - 1];
    enum synth_form form = s->twin ? SYNTH_AS_BF16 : m->form;
    bool listed = !s->twin && !s->fused &&
                  (s->dialect == SYNTH_MXFP4 || s->dialect == SYNTH_NVFP4_CT ||
                   s->dialect == SYNTH_QUARK);
    char module[64], name[160];

    snprintf(module, sizeof(module), "moe.%s", proj);
    layer_name(p, layer, module, name, sizeof(name));
    /* The numbers do not depend on the prefix of a dialect. */
    snprintf(m->base, sizeof(m->base), "experts.%d.%s", layer, proj);
    for (int e = 0; e < (listed ? m->experts : 1); e++) {
        if (listed) {
            snprintf(module, sizeof(module),
                     s->dialect == SYNTH_QUARK ? "moe.%d.%s"
                                               : "moe.experts.%d.%s",
                     e, proj);
            layer_name(p, layer, module, name, sizeof(name));
        }
        for (int i = 0; i < n_planes(form); i++) {
            add_plane(p, form, i, listed ? e : -1, name);
        }
    }
    if (form == SYNTH_AS_NVFP4) { /* of activations: never used */
        struct tensor *t = add_tensor(p, "F32");

        snprintf(t->name, sizeof(t->name), "%.200s.input_scale", name);
        t->n_dims = 1;
        t->dim[0] = (uint64_t)m->experts;
        t->bytes = (uint64_t)m->experts * 4;
    }
}

static void add_linear(struct plan *p, int layer, const char *module, int rows,
                       int cols, double gain)
{
    struct synth_matrix *m =
        add_matrix(p, SYNTH_MATRIX, layer, rows, cols, gain);
    char name[160];

    if (p->s->pack_all && layer < p->s->n_layers &&
        strcmp(module, "moe.gate") != 0) {
        m->form = SYNTH_AS_MXFP4;
    }
    layer_name(p, layer, module, name, sizeof(name));
    add_single(p, name);
}

static void add_norm(struct plan *p, int layer, const char *module, int cols)
{
    char name[160];

    add_matrix(p, SYNTH_NORM, layer, 1, cols, 1);
    layer_name(p, layer, module, name, sizeof(name));
    add_single(p, name);
}

static bool is_full(const struct synth *s, int layer)
{
    return layer < s->n_layers && layer % s->full_every == 0;
}

static void add_attention(struct plan *p, int i, double out_gain)
{
    const struct synth *s = p->s;
    int heads = is_full(s, i) ? s->n_head_full : s->n_head_sliding;

    add_norm(p, i, "input_layernorm", s->hidden);
    add_norm(p, i, "post_attention_layernorm", s->hidden);
    add_linear(p, i, "self_attn.q_proj", heads * 128, s->hidden, 1);
    add_linear(p, i, "self_attn.k_proj", s->n_kv_head * 128, s->hidden, 1);
    add_linear(p, i, "self_attn.v_proj", s->n_kv_head * 128, s->hidden, 1);
    add_linear(p, i, "self_attn.o_proj", s->hidden, heads * 128, out_gain);
    add_linear(p, i, "self_attn.g_proj", heads, s->hidden, 1);
    add_norm(p, i, "self_attn.q_norm", 128);
    add_norm(p, i, "self_attn.k_norm", 128);
}

static void add_mlp(struct plan *p, int i, const char *where, int width,
                    double out_gain)
{
    char name[64];

    snprintf(name, sizeof(name), "%s.gate_proj", where);
    add_linear(p, i, name, width, p->s->hidden, 1);
    snprintf(name, sizeof(name), "%s.up_proj", where);
    add_linear(p, i, name, width, p->s->hidden, 1);
    snprintf(name, sizeof(name), "%s.down_proj", where);
    add_linear(p, i, name, p->s->hidden, width, out_gain);
}

static void add_moe(struct plan *p, int i, double out_gain)
{
    const struct synth *s = p->s;
    static const char *const proj[] = {"gate_proj", "up_proj", "down_proj"};
    char name[160];

    add_linear(p, i, "moe.gate", s->n_expert, s->hidden, 2);
    add_matrix(p, SYNTH_BIAS, i, 1, s->n_expert, 1)->form = SYNTH_AS_F32;
    layer_name(p, i, "moe.router_bias", name, sizeof(name));
    add_single(p, name);
    for (int j = 0; j < 3; j++) {
        struct synth_matrix *m = add_matrix(
            p, SYNTH_MATRIX, i, j < 2 ? s->expert_width : s->hidden,
            j < 2 ? s->hidden : s->expert_width, j < 2 ? 1 : out_gain);

        m->form = dialect_form(s->dialect);
        m->experts = s->n_expert;
        add_experts(p, i, proj[j]);
    }
    add_mlp(p, i, "share_expert", s->shared_width, out_gain);
}

static void add_global(struct plan *p, enum synth_kind kind, const char *name)
{
    int rows = kind == SYNTH_NORM ? 1 : p->s->vocab;

    add_matrix(p, kind, -1, rows, p->s->hidden, 1);
    add_single(p, name);
}

static void add_mtp(struct plan *p, int i, double out_gain)
{
    const struct synth *s = p->s;
    char name[160];

    add_norm(p, i, "enorm", s->hidden);
    add_norm(p, i, "hnorm", s->hidden);
    add_matrix(p, SYNTH_EH, i, s->hidden, 2 * s->hidden, 1);
    layer_name(p, i, "eh_proj", name, sizeof(name));
    add_single(p, name);
    add_attention(p, i, out_gain);
    add_mlp(p, i, "mlp", s->dense_width, out_gain);
    add_norm(p, i, "shared_head.norm", s->hidden);
    add_matrix(p, SYNTH_HEAD, i, s->vocab, s->hidden, 1);
    layer_name(p, i,
               s->mtp_names == SYNTH_MTP_BLOCK ? "shared_head.head"
                                               : "shared_head.output",
               name, sizeof(name));
    add_single(p, name);
}

/* A tensor that nothing may read: filled with NaNs. */
static void add_useless(struct plan *p, const char *name, int n)
{
    struct tensor *t = add_tensor(p, "F32");

    snprintf(t->name, sizeof(t->name), "%s", name);
    t->n_dims = n > 0 ? 1 : 0;
    t->dim[0] = (uint64_t)n;
    t->bytes = (n > 0 ? (uint64_t)n : 1) * 4;
}

static void add_inert(struct plan *p)
{
    static const char *const scalar[] = {"self_attn.k_proj.k_scale",
                                         "self_attn.v_proj.v_scale"};
    static const char *const vector[] = {
        "self_attn.k_scale",           "self_attn.v_scale",
        "self_attn.q_scale",           "self_attn.prob_scale",
        "self_attn.attn.k_scale",      "self_attn.attn.v_scale",
        "self_attn.k_zero_point",      "self_attn.v_zero_point",
        "self_attn.attn.k_zero_point", "self_attn.kv_scale",
        "self_attn.q_zero_point",      "self_attn.qkv_proj.k_scale"};
    bool vectors = p->s->inert == SYNTH_VECTOR_INERT;
    const char *const *list = vectors ? vector : scalar;
    int n =
        (int)(vectors ? sizeof(vector) : sizeof(scalar)) / (int)sizeof(*list);
    char name[160];

    for (int i = 0; i < p->s->n_layers + p->s->n_mtp; i++) {
        for (int j = 0; j < n; j++) {
            layer_name(p, i, list[j], name, sizeof(name));
            add_useless(p, name, vectors ? p->s->n_kv_head : 0);
        }
    }
}

static void make_plan(struct plan *p)
{
    const struct synth *s = p->s;
    double out_gain = s->cycle ? 0.02 : 0.7;
    char name[64];

    if (!s->only_mtp) {
        snprintf(name, sizeof(name), "%sembed_tokens", prefix(p, 0));
        add_global(p, SYNTH_EMBED, name);
    }
    for (int i = 0; i < s->n_layers && !s->only_mtp; i++) {
        add_attention(p, i, out_gain);
        if (i < s->n_dense) {
            add_mlp(p, i, "mlp", s->dense_width, out_gain);
        } else {
            add_moe(p, i, out_gain);
        }
    }
    for (int i = 0; i < s->n_mtp && !s->no_mtp; i++) {
        add_mtp(p, s->n_layers + i, out_gain);
    }
    if (!s->only_mtp) {
        snprintf(name, sizeof(name), "%snorm", prefix(p, 0));
        add_global(p, SYNTH_NORM, name);
        add_global(p, SYNTH_HEAD, "lm_head");
    }
    if (s->inert != SYNTH_NO_INERT) {
        add_inert(p);
    }
    if (s->vision) {
        add_useless(p, "vision_model.ln_pre.weight", 16);
        add_useless(p, "vision_model.transformer.resblocks.0.ln_1.bias", 16);
        add_useless(p, "vit_large_projector.weight", 64);
    }
}

/* ---- config.json --------------------------------------------------------- */

static json_t *layer_list(const struct synth *s, double full, double sliding)
{
    int n = s->n_layers + (s->short_lists ? 0 : s->n_mtp);
    json_t *list = json_array();

    for (int i = 0; i < n; i++) {
        double x = is_full(s, i) ? full : sliding;

        json_array_append_new(list, json_real(x));
    }
    return list;
}

/* As published, 7 and 16 are integers and the zeros are not. */
static json_t *limit_list(const struct synth *s, double limit)
{
    int n = s->n_layers + (s->short_lists ? 0 : s->n_mtp);
    json_t *list = json_array();

    for (int i = 0; i < n; i++) {
        bool last = i < s->n_layers && i >= s->n_layers - 2;

        json_array_append_new(list, last && limit == (int)limit
                                        ? json_integer((int)limit)
                                        : json_real(last ? limit : 0));
    }
    return list;
}

static json_t *type_list(const struct synth *s)
{
    int n = s->n_layers + (s->short_lists ? 0 : s->n_mtp);
    json_t *list = json_array();

    for (int i = 0; i < n; i++) {
        json_array_append_new(list,
                              json_string(is_full(s, i) ? "full_attention"
                                                        : "sliding_attention"));
    }
    return list;
}

static json_t *text_config(const struct synth *s)
{
    char moe[4096] = "";
    size_t at = 0;

    for (int i = s->n_dense; i < s->n_layers; i++) {
        at += (size_t)snprintf(moe + at, sizeof(moe) - at, "%s%d",
                               at > 0 ? "," : "", i);
    }
    return json_pack(
        "{s:[s] s:s s:s s:i s:i s:i s:i s:i s:i s:i s:i"
        " s:{s:s s:i s:i s:i s:i} s:o s:i s:i s:o s:o"
        " s:{s:s s:f s:i s:f s:f} s:[s] s:[] s:b s:b s:s s:i s:i s:i s:i"
        " s:s s:b s:b s:f s:b s:o s:o s:b s:i s:[ii]}",
        "architectures", "Step3p5ForCausalLM", "model_type", "step3p5",
        "att_impl_type", "GQA", "hidden_size", s->hidden, "intermediate_size",
        s->dense_width, "num_hidden_layers", s->n_layers,
        "num_nextn_predict_layers", s->n_mtp, "vocab_size", s->vocab,
        "num_attention_heads", s->n_head_full, "num_attention_groups",
        s->n_kv_head, "head_dim", 128, "attention_other_setting",
        "attention_type", "sliding_attention", "num_attention_heads",
        s->n_head_sliding, "num_attention_groups", s->n_kv_head, "head_dim",
        128, "true_head_dim", 128, "layer_types", type_list(s),
        "sliding_window", s->window, "max_position_embeddings", s->max_len,
        "rope_theta", layer_list(s, 5000000, 10000), "partial_rotary_factors",
        layer_list(s, 0.5, 1), "rope_scaling", "rope_type", "llama3", "factor",
        2.0, "original_max_position_embeddings", s->max_len / 2,
        "low_freq_factor", 1.0, "high_freq_factor", 32.0, "yarn_only_types",
        "full_attention", "use_rope_layers", "use_head_wise_attn_gate", 1,
        "use_moe", s->n_dense < s->n_layers, "moe_layers_enum", moe,
        "moe_num_experts", s->n_expert, "moe_top_k", s->top_k,
        "moe_intermediate_size", s->expert_width, "share_expert_dim",
        s->shared_width, "moe_router_activation", "sigmoid",
        "use_moe_router_bias", 1, "norm_expert_weight", 1,
        "moe_router_scaling_factor", 3.0, "need_fp32_gate", 1, "swiglu_limits",
        limit_list(s, s->limit_routed), "swiglu_limits_shared",
        limit_list(s, s->limit_shared), "sink", 0, "bos_token_id", 0,
        "eos_token_id", 1, 2);
}

static json_t *quant_config(const struct synth *s)
{
    if (s->twin || s->dialect == SYNTH_BF16) {
        return NULL;
    }
    switch (s->dialect) {
    case SYNTH_FP8:
        return json_pack("{s:s s:s s:[ii]}", "quant_method", "fp8",
                         "activation_scheme", "dynamic", "weight_block_size",
                         128, 128);
    case SYNTH_NVFP4:
        return json_pack("{s:s s:s s:s s:{s:{s:{s:i s:s s:i} s:[s]}}"
                         " s:[s s s s s s s]}",
                         "quant_method", "modelopt", "quant_algo", "NVFP4",
                         "kv_cache_quant_algo", "FP8", "config_groups",
                         "group_0", "weights", "num_bits", 4, "type", "float",
                         "group_size", 16, "targets", "Linear", "ignore",
                         "lm_head", "*self_attn*", "*mlp*", "*.moe.gate",
                         "*share_expert*", "*.eh_proj", "*.shared_head.*");
    case SYNTH_QUARK:
        return json_pack("{s:s s:{s:{s:s s:s s:i}}}", "quant_method", "quark",
                         "global_quant_config", "weight", "dtype", "fp4",
                         "qscheme", "per_group", "group_size", 32);
    default:
        break;
    }
    return json_pack(
        "{s:s s:s s:{s:{s:[s] s:s s:{s:i s:s s:s s:i s:b}}} s:[s s s s]}",
        "quant_method", "compressed-tensors", "format",
        s->pack_all ? "mxfp4-pack-quantized" : "mixed-precision",
        "config_groups", "group_0", "targets",
        s->pack_all ? "Linear" : "re:.*\\.experts\\.\\d+\\..*", "format",
        s->dialect == SYNTH_MXFP4 ? "mxfp4-pack-quantized"
                                  : "nvfp4-pack-quantized",
        "weights", "num_bits", 4, "type", "float", "strategy", "group",
        "group_size", s->dialect == SYNTH_MXFP4 ? 32 : 16, "symmetric", 1,
        "ignore", "lm_head", "re:.*eh_proj$", "re:.*moe\\.gate$",
        "re:.*shared_head.*");
}

static int dump(const json_t *v, const char *dir, const char *name)
{
    char path[4096];
    int r;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    r = json_dump_file(v, path, JSON_INDENT(1));
    return r < 0 ? -EIO : 0;
}

static int write_config(const struct synth *s, const char *dir)
{
    json_t *text = text_config(s), *top = text, *quant = quant_config(s);
    int r;

    if (!s->flat) {
        top = json_pack("{s:[s] s:s s:o}", "architectures",
                        "Step3p7ForConditionalGeneration", "model_type",
                        "step3p7", "text_config", text);
    }
    if (quant != NULL) {
        json_object_set_new(top, "quantization_config", quant);
    }
    r = top == NULL ? -ENOMEM : dump(top, dir, "config.json");
    json_decref(top);
    return r;
}

/* The tokenizer with words "w1024", .. for the ids it lacks: no merge makes
 * them, so text is still encoded as before, and every id has a text. */
static int write_tokenizer(const struct synth *s, const char *dir)
{
    json_error_t error;
    json_t *top = json_load_file(s->tokenizer, 0, &error);
    json_t *model = json_object_get(top, "model");
    json_t *vocab = json_object_get(model, "vocab");
    size_t n = json_object_size(vocab) +
               json_array_size(json_object_get(top, "added_tokens"));
    char word[32];
    int r;

    if (vocab == NULL) {
        json_decref(top);
        return -EINVAL;
    }
    /* The oracle's tokenizer lists each id once, in vocab or as added. */
    for (int id = (int)n - 1; id < s->vocab; id++) {
        snprintf(word, sizeof(word), "w%d", id);
        json_object_set_new(vocab, word, json_integer(id));
    }
    r = dump(top, dir, "tokenizer.json");
    json_decref(top);
    return r;
}

/* ---- shards -------------------------------------------------------------- */

struct out {
    int fd;
    unsigned char *buf;
    size_t n;
};

static int flush(struct out *o)
{
    size_t at = 0;

    while (at < o->n) {
        ssize_t r = write(o->fd, o->buf + at, o->n - at);

        if (r < 0) {
            return -errno;
        }
        at += (size_t)r;
    }
    o->n = 0;
    return 0;
}

/* Room for n bytes at the end of the buffer. */
static int room(struct out *o, size_t n, unsigned char **ret)
{
    int r = o->n + n > BUFFER ? flush(o) : 0;

    *ret = o->buf + o->n;
    o->n += r == 0 ? n : 0;
    return r;
}

static int write_tensor(const struct plan *p, const struct tensor *t,
                        struct out *o)
{
    const struct synth_matrix *m;
    unsigned char *at;
    size_t bytes;
    int rows, r = 0;

    if (t->matrix < 0) { /* NaNs: whoever reads one shows it */
        r = room(o, t->bytes, &at);
        if (r == 0) {
            memset(at, 0xff, t->bytes);
        }
        return r;
    }
    m = &p->matrix[t->matrix];
    rows = synth_plane_rows(p->s, m, t->plane);
    bytes = synth_row_bytes(p->s, m, t->plane);
    for (int e = t->expert; e < t->expert + t->n_experts; e++) {
        for (int row = 0; row < rows && r == 0; row++) {
            r = room(o, bytes, &at);
            if (r == 0) {
                synth_row(p->s, m, e, t->plane, row, at);
            }
        }
    }
    return r;
}

static int skip_tensor(const struct tensor *t, struct out *o)
{
    off_t end = lseek(o->fd, (off_t)t->bytes, SEEK_CUR);

    return end < 0 || ftruncate(o->fd, end) < 0 ? -errno : 0;
}

static int write_header(const struct plan *p, int from, int to, struct out *o)
{
    json_t *top = json_object();
    uint64_t off = 0, n;
    char *text;
    int r = 0;

    json_object_set_new(top, "__metadata__",
                        json_pack("{s:s}", "format", "pt"));
    for (int i = from; i < to; i++) {
        const struct tensor *t = &p->tensor[i];
        json_t *dims = json_array();

        for (int d = 0; d < t->n_dims; d++) {
            json_array_append_new(dims, json_integer((json_int_t)t->dim[d]));
        }
        json_object_set_new(top, t->name,
                            json_pack("{s:s s:o s:[II]}", "dtype", t->dtype,
                                      "shape", dims, "data_offsets",
                                      (json_int_t)off,
                                      (json_int_t)(off + t->bytes)));
        off += t->bytes;
    }
    text = json_dumps(top, JSON_COMPACT);
    json_decref(top);
    if (text == NULL) {
        return -ENOMEM;
    }
    n = (strlen(text) + 7) / 8 * 8; /* padded with spaces */
    if (dprintf(o->fd, "%s%-*s", "12345678", (int)n, text) != (int)(8 + n) ||
        pwrite(o->fd, &n, 8, 0) != 8) {
        r = -EIO;
    }
    free(text);
    return r;
}

static int write_shard(const struct plan *p, const char *path, int from, int to)
{
    struct out o = {
        .fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644),
        .buf = malloc(BUFFER),
    };
    int r = o.fd < 0 ? -errno : o.buf == NULL ? -ENOMEM : 0;

    if (r == 0) {
        r = write_header(p, from, to, &o);
    }
    for (int i = from; i < to && r == 0; i++) {
        r = p->s->sparse ? skip_tensor(&p->tensor[i], &o)
                         : write_tensor(p, &p->tensor[i], &o);
    }
    if (r == 0) {
        r = flush(&o);
    }
    if (o.fd >= 0 && close(o.fd) < 0 && r == 0) {
        r = -errno;
    }
    free(o.buf);
    return r;
}

static int write_shards(const struct plan *p, const char *dir)
{
    json_t *map = json_object(), *index;
    uint64_t total = 0, share, so_far = 0;
    int r = 0, from = 0, shard = 0;
    char name[64], path[4096];

    for (int i = 0; i < p->n_tensors; i++) {
        total += p->tensor[i].bytes;
    }
    share = total / (uint64_t)(p->s->n_shards > 0 ? p->s->n_shards : 1) + 1;
    for (int i = 0; i < p->n_tensors && r == 0; i++) {
        const struct tensor *t = &p->tensor[i];

        snprintf(name, sizeof(name), "model-%05d.safetensors", shard + 1);
        if (!t->unindexed) {
            json_object_set_new(map, t->name, json_string(name));
        }
        so_far += t->bytes;
        if (so_far >= share || i + 1 == p->n_tensors) {
            snprintf(path, sizeof(path), "%s/%s", dir, name);
            r = write_shard(p, path, from, i + 1);
            from = i + 1;
            so_far = 0;
            shard++;
        }
    }
    index = json_pack("{s:{s:I} s:o}", "metadata", "total_size",
                      (json_int_t)total, "weight_map", map);
    if (r == 0 && !p->s->no_index) {
        r = dump(index, dir, "model.safetensors.index.json");
    }
    json_decref(index);
    return r;
}

int synth_write(const struct synth *s, const char *dir)
{
    struct plan p = {.s = s};
    int r = mkdir(dir, 0755) < 0 && errno != EEXIST ? -errno : 0;

    if (r == 0) {
        r = write_config(s, dir);
    }
    if (r == 0 && s->tokenizer != NULL) {
        r = write_tokenizer(s, dir);
    }
    if (r == 0) {
        make_plan(&p);
        r = write_shards(&p, dir);
    }
    free(p.matrix);
    free(p.tensor);
    return r;
}
