/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Reads config.json into struct shape. Owns the knowledge of which fields there
 * are, what each may say, and what holds where one is absent; knows no tensor.
 * Pure, any thread.
 *
 * What matters: a field that would change the numbers and is not understood is
 * a problem, never a default. The defaults that exist are those of the
 * published files (model-spec section 1): rms_norm_eps 1e-5, lists cut to the
 * trunk's layers with the MTP layers sliding, base 10,000, full rotary, no
 * limits. Reading goes on after a problem, so that one run names all of them.
 */
#include "daemon/model/config.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/lfs.h"
#include "daemon/model/json.h"
#include "kernels/kernels.h"

#define FOUND_MAX 60 /* characters of a wrong value in a problem */

struct reader {
    struct report *rep;
    const json_t *top;  /* the file */
    const json_t *text; /* the decoder's fields: text_config or top */
    const char *prefix; /* "text_config." or "" */
    bool bad;
};

/* A field is wrong: says what would be right and what stands there. */
static void wrong(struct reader *c, const char *field, const json_t *v,
                  const char *expected)
{
    char *found =
        v != NULL ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    report_problem(c->rep, REPORT_CONFIG,
                   "config.json: %s%s: expected %s, found %.*s%s", c->prefix,
                   field, expected, FOUND_MAX,
                   v == NULL ? "nothing" : (found != NULL ? found : "?"),
                   found != NULL && strlen(found) > FOUND_MAX ? "..." : "");
    free(found);
    c->bad = true;
}

static bool absent(const json_t *v)
{
    return v == NULL || json_is_null(v);
}

static int int_value(struct reader *c, const char *field, const json_t *v,
                     int min, int max, int otherwise)
{
    char expected[64];
    json_int_t n = json_integer_value(v);

    if (json_is_integer(v) && n >= min && n <= max) {
        return (int)n;
    }
    snprintf(expected, sizeof(expected), "an integer from %d to %d", min, max);
    wrong(c, field, v, expected);
    return otherwise;
}

/* An integer that must be there. */
static int need_int(struct reader *c, const char *field, int min, int max)
{
    return int_value(c, field, json_object_get(c->text, field), min, max, min);
}

static int opt_int(struct reader *c, const char *field, int min, int max,
                   int otherwise)
{
    const json_t *v = json_object_get(c->text, field);

    return absent(v) ? otherwise : int_value(c, field, v, min, max, otherwise);
}

static bool opt_bool(struct reader *c, const char *field, bool otherwise)
{
    const json_t *v = json_object_get(c->text, field);

    if (absent(v)) {
        return otherwise;
    }
    if (!json_is_boolean(v)) {
        wrong(c, field, v, "true or false");
        return otherwise;
    }
    return json_is_true(v);
}

/* A switch for which only one position is implemented. */
static void only_bool(struct reader *c, const char *field, bool only)
{
    if (opt_bool(c, field, only) != only) {
        wrong(c, field, json_object_get(c->text, field),
              only ? "true (nothing else is supported)"
                   : "false (nothing else is supported)");
    }
}

static void only_string(struct reader *c, const char *field, const char *only)
{
    const json_t *v = json_object_get(c->text, field);

    if (!absent(v) &&
        (!json_is_string(v) || strcmp(json_string_value(v), only) != 0)) {
        char expected[80];

        snprintf(expected, sizeof(expected), "\"%s\"", only);
        wrong(c, field, v, expected);
    }
}

/* A number; integers are as good as floats. */
static double number(struct reader *c, const char *field, const json_t *v,
                     double min, double max, double otherwise)
{
    char expected[80];
    double x = json_number_value(v);

    if (json_is_number(v) && x >= min && x <= max) {
        return x;
    }
    snprintf(expected, sizeof(expected), "a number from %g to %g", min, max);
    wrong(c, field, v, expected);
    return otherwise;
}

static double opt_number(struct reader *c, const char *field, double min,
                         double max, double otherwise)
{
    const json_t *v = json_object_get(c->text, field);

    return absent(v) ? otherwise : number(c, field, v, min, max, otherwise);
}

/* A list with an entry a layer: at least one for each trunk layer. NULL where
 * it is not. */
static const json_t *layer_list(struct reader *c, const char *field,
                                const struct shape *s)
{
    const json_t *v = json_object_get(c->text, field);

    if (!json_is_array(v) || json_array_size(v) < (size_t)s->n_layers) {
        char expected[80];

        snprintf(expected, sizeof(expected), "a list of %d or %d entries",
                 s->n_layers, s->n_layers + s->n_mtp);
        wrong(c, field, v, expected);
        return NULL;
    }
    return v;
}

/* Entry i of a list of numbers; past its end (MTP layers of a list cut to the
 * trunk) what holds there. */
static double list_number(struct reader *c, const char *field,
                          const json_t *list, int i, double min, double max,
                          double past_end)
{
    char name[96];

    if (list == NULL || (size_t)i >= json_array_size(list)) {
        return past_end;
    }
    snprintf(name, sizeof(name), "%s[%d]", field, i);
    return number(c, name, json_array_get(list, (size_t)i), min, max, past_end);
}

/* ---- the parts of the file ---------------------------------------------- */

static void read_family(struct reader *c, struct shape *s)
{
    const json_t *v = json_object_get(c->top, "model_type");
    const char *name = json_string_value(v);

    if (name == NULL ||
        (strcmp(name, "step3p5") != 0 && strcmp(name, "step3p7") != 0)) {
        const char *prefix = c->prefix;

        c->prefix = "";
        wrong(c, "model_type", v, "\"step3p5\" or \"step3p7\"");
        c->prefix = prefix;
        return;
    }
    snprintf(s->family, sizeof(s->family), "%s", name);
    if (c->text != c->top) {
        only_string(c, "model_type", "step3p5");
    }
}

/* Switches that would change the arithmetic, at their only known position. */
static void read_switches(struct reader *c, struct shape *s)
{
    only_bool(c, "sink", false);
    only_bool(c, "use_mfa", false);
    only_bool(c, "use_qk_norm", true);
    only_bool(c, "zero_centered", true);
    only_bool(c, "tie_word_embeddings", false);
    only_bool(c, "attention_bias", false);
    only_string(c, "att_impl_type", "GQA");
    only_string(c, "hidden_act", "silu");
    only_string(c, "moe_router_activation", "sigmoid");
    s->attn_gate = opt_bool(c, "use_head_wise_attn_gate", true);
    if (!absent(json_object_get(c->text, "use_rope_layers")) &&
        json_array_size(json_object_get(c->text, "use_rope_layers")) != 0) {
        wrong(c, "use_rope_layers", json_object_get(c->text, "use_rope_layers"),
              "an empty list (RoPE on every layer)");
    }
}

static void read_sizes(struct reader *c, struct shape *s)
{
    int max_pos, max_seq;

    s->hidden = need_int(c, "hidden_size", 1, SHAPE_MAX_HIDDEN);
    s->vocab = need_int(c, "vocab_size", 1, SHAPE_MAX_VOCAB);
    s->n_layers = need_int(c, "num_hidden_layers", 1, SHAPE_MAX_LAYERS);
    s->n_mtp = opt_int(c, "num_nextn_predict_layers", 0, SHAPE_MAX_MTP, 0);
    s->head_dim = need_int(c, "head_dim", KERN_HEAD_DIM, KERN_HEAD_DIM);
    s->eps = (float)opt_number(c, "rms_norm_eps", 1e-12, 0.1, 1e-5);
    max_pos = opt_int(c, "max_position_embeddings", 1, SHAPE_MAX_LEN, 0);
    max_seq = opt_int(c, "max_seq_len", 1, SHAPE_MAX_LEN, 0);
    if (max_pos == 0 && max_seq == 0 && !c->bad) {
        wrong(c, "max_position_embeddings", NULL, "the context length");
    }
    s->max_model_len = max_pos == 0                        ? max_seq
                       : max_seq == 0 || max_pos < max_seq ? max_pos
                                                           : max_seq;
}

static void read_heads(struct reader *c, int *n_head, int *n_kv_head)
{
    *n_head = need_int(c, "num_attention_heads", 1, SHAPE_MAX_HEADS);
    *n_kv_head = need_int(c, "num_attention_groups", 1, SHAPE_MAX_HEADS);
    if (*n_head % *n_kv_head != 0) {
        wrong(c, "num_attention_heads",
              json_object_get(c->text, "num_attention_heads"),
              "a multiple of num_attention_groups");
    }
}

/* The sliding layers' own numbers of heads. */
static void read_sliding(struct reader *c, struct shape *s, int *n_head,
                         int *n_kv_head)
{
    const json_t *v = json_object_get(c->text, "attention_other_setting");
    struct reader in = *c;
    char prefix[64];

    s->window = need_int(c, "sliding_window", 1, SHAPE_MAX_LEN);
    if (!json_is_object(v)) {
        wrong(c, "attention_other_setting", v,
              "an object (the sliding layers' heads)");
        return;
    }
    snprintf(prefix, sizeof(prefix), "%sattention_other_setting.", c->prefix);
    in.text = v;
    in.prefix = prefix;
    only_string(&in, "attention_type", "sliding_attention");
    read_heads(&in, n_head, n_kv_head);
    opt_int(&in, "head_dim", KERN_HEAD_DIM, KERN_HEAD_DIM, 0);
    opt_int(&in, "true_head_dim", KERN_HEAD_DIM, KERN_HEAD_DIM, 0);
    c->bad = c->bad || in.bad;
}

/* full_attention or sliding_attention, layer by layer. Returns whether any
 * layer slides. */
static bool read_layer_types(struct reader *c, struct shape *s)
{
    const json_t *list = layer_list(c, "layer_types", s);
    bool any = false;

    for (int i = 0; i < s->n_layers + s->n_mtp; i++) {
        struct shape_layer *l = &s->layer[i];

        l->sliding = true; /* what holds past the end of a short list */
        if (list != NULL && (size_t)i < json_array_size(list)) {
            const json_t *v = json_array_get(list, (size_t)i);
            const char *name = json_string_value(v);

            l->sliding = name != NULL && strcmp(name, "sliding_attention") == 0;
            if (!l->sliding &&
                (name == NULL || strcmp(name, "full_attention") != 0)) {
                char field[32];

                snprintf(field, sizeof(field), "layer_types[%d]", i);
                wrong(c, field, v,
                      "\"full_attention\" or \"sliding_attention\"");
            }
        }
        any = any || l->sliding;
    }
    return any;
}

static void read_attention(struct reader *c, struct shape *s)
{
    int head[2] = {1, 1}, kv_head[2] = {1, 1}; /* full, sliding */
    bool any_sliding = read_layer_types(c, s);

    read_heads(c, &head[0], &kv_head[0]);
    if (any_sliding) {
        read_sliding(c, s, &head[1], &kv_head[1]);
    }
    for (int i = 0; i < s->n_layers + s->n_mtp; i++) {
        struct shape_layer *l = &s->layer[i];

        l->n_head = head[l->sliding];
        l->n_kv_head = kv_head[l->sliding];
        l->window = l->sliding ? s->window : 0;
    }
}

/* Whether the scaling applies to layers of this kind. */
static bool scaled_type(struct reader *c, const char *type)
{
    const json_t *list = json_object_get(c->text, "yarn_only_types");
    const json_t *v;
    size_t i;

    if (absent(list)) {
        return true;
    }
    json_array_foreach(list, i, v)
    {
        if (json_is_string(v) && strcmp(json_string_value(v), type) == 0) {
            return true;
        }
    }
    return false;
}

/* rope_scaling: none, or llama3 with its four numbers. */
static bool read_scaling(struct reader *c, struct shape *s)
{
    const json_t *v = json_object_get(c->text, "rope_scaling");
    const json_t *type = json_object_get(v, "rope_type");
    const json_t *only = json_object_get(c->text, "yarn_only_types");
    struct reader in = *c;
    char prefix[64];

    if (absent(v)) {
        return false;
    }
    type = type != NULL ? type : json_object_get(v, "type");
    if (json_is_string(type) &&
        strcmp(json_string_value(type), "default") == 0) {
        return false;
    }
    if (!json_is_string(type) ||
        strcmp(json_string_value(type), "llama3") != 0) {
        wrong(c, "rope_scaling.rope_type", type, "\"llama3\" or \"default\"");
        return false;
    }
    if (!absent(only) && json_array_size(only) == 0) {
        wrong(c, "yarn_only_types", only, "a list of layer types, not empty");
    }
    snprintf(prefix, sizeof(prefix), "%srope_scaling.", c->prefix);
    in.text = v;
    in.prefix = prefix;
    s->factor = number(&in, "factor", json_object_get(v, "factor"), 1, 1e6, 1);
    s->low_freq = number(&in, "low_freq_factor",
                         json_object_get(v, "low_freq_factor"), 1e-6, 1e6, 1);
    s->high_freq = number(&in, "high_freq_factor",
                          json_object_get(v, "high_freq_factor"), 1e-6, 1e6, 2);
    s->original_len = number(
        &in, "original_max_position_embeddings",
        json_object_get(v, "original_max_position_embeddings"), 1, 1e9, 1);
    if (s->high_freq <= s->low_freq) {
        wrong(&in, "high_freq_factor", json_object_get(v, "high_freq_factor"),
              "more than low_freq_factor");
    }
    c->bad = c->bad || in.bad;
    return true;
}

/* The rotary part of a head: factor * head_dim channels, in pairs. */
static int n_freq(struct reader *c, const struct shape *s, const json_t *list,
                  int i)
{
    double factor = list_number(c, "partial_rotary_factors", list, i, 0, 1, 1);
    double n = factor * s->head_dim / 2;

    if (n < 1 || n != floor(n)) {
        char field[48];

        snprintf(field, sizeof(field), "partial_rotary_factors[%d]", i);
        wrong(c, field, json_array_get(list, (size_t)i),
              "a share of head_dim that is an even number of channels");
        return 1;
    }
    return (int)n;
}

static void read_rope(struct reader *c, struct shape *s)
{
    const json_t *theta = json_object_get(c->text, "rope_theta");
    const json_t *factors = layer_list(c, "partial_rotary_factors", s);
    bool scaling = read_scaling(c, s);
    bool scaled[2] = {scaling && scaled_type(c, "full_attention"),
                      scaling && scaled_type(c, "sliding_attention")};
    double all = 10000; /* what holds past the end of a short list */

    if (json_is_number(theta)) { /* one for all layers */
        all = number(c, "rope_theta", theta, 1, 1e15, all);
        theta = NULL;
    } else {
        theta = layer_list(c, "rope_theta", s);
    }
    for (int i = 0; i < s->n_layers + s->n_mtp; i++) {
        struct shape_layer *l = &s->layer[i];

        l->theta = list_number(c, "rope_theta", theta, i, 1, 1e15, all);
        l->n_freq = n_freq(c, s, factors, i);
        l->scaled = scaled[l->sliding];
    }
}

static void read_limits(struct reader *c, struct shape *s)
{
    const json_t *routed = layer_list(c, "swiglu_limits", s);
    const json_t *shared = layer_list(c, "swiglu_limits_shared", s);

    for (int i = 0; i < s->n_layers + s->n_mtp; i++) {
        s->layer[i].limit_routed =
            (float)list_number(c, "swiglu_limits", routed, i, 0, 1e6, 0);
        s->layer[i].limit_shared =
            (float)list_number(c, "swiglu_limits_shared", shared, i, 0, 1e6, 0);
    }
}

/* "3,4,5" or [3, 4, 5]: marks the MoE layers. */
static void read_moe_layers(struct reader *c, struct shape *s)
{
    const json_t *v = json_object_get(c->text, "moe_layers_enum");
    const char *at = json_string_value(v);
    const json_t *item;
    bool ok = json_is_string(v) || json_is_array(v);
    size_t i;

    json_array_foreach(v, i, item)
    {
        json_int_t n = json_integer_value(item);

        if (!json_is_integer(item) || n < 0 || n >= s->n_layers) {
            ok = false;
        } else {
            s->layer[n].moe = true;
        }
    }
    while (at != NULL && *at != '\0') {
        char *end;
        long n = strtol(at, &end, 10);

        if (end == at || n < 0 || n >= s->n_layers) {
            ok = false;
            break;
        }
        s->layer[n].moe = true;
        end += strspn(end, " ");
        if (*end != ',' && *end != '\0') {
            ok = false;
            break;
        }
        at = *end == ',' ? end + 1 : end;
    }
    if (!ok) {
        wrong(c, "moe_layers_enum", v,
              "the trunk layers with experts, as in \"3,4,5\"");
    }
}

static void read_moe(struct reader *c, struct shape *s)
{
    int n_moe = 0;

    if (opt_bool(c, "use_moe", true)) {
        read_moe_layers(c, s);
    }
    for (int i = 0; i < s->n_layers; i++) {
        n_moe += s->layer[i].moe;
    }
    if (n_moe > 0) {
        s->n_expert = need_int(c, "moe_num_experts", 1, SHAPE_MAX_EXPERTS);
        s->top_k = need_int(c, "moe_top_k", 1, KERN_MAX_TOPK);
        s->expert_width =
            need_int(c, "moe_intermediate_size", 1, SHAPE_MAX_WIDTH);
        s->shared_width = need_int(c, "share_expert_dim", 1, SHAPE_MAX_WIDTH);
        s->router_scale =
            (float)opt_number(c, "moe_router_scaling_factor", 1e-6, 1e6, 1);
        s->router_renorm = opt_bool(c, "norm_expert_weight", true);
        s->router_bias = opt_bool(c, "use_moe_router_bias", true);
        if (s->top_k > s->n_expert) {
            wrong(c, "moe_top_k", json_object_get(c->text, "moe_top_k"),
                  "at most moe_num_experts");
        }
    }
    if (n_moe < s->n_layers + s->n_mtp) {
        int width = need_int(c, "intermediate_size", 1, SHAPE_MAX_WIDTH);

        for (int i = 0; i < s->n_layers + s->n_mtp; i++) {
            s->layer[i].width = s->layer[i].moe ? 0 : width;
        }
    }
}

/* text_config, else the top level; whoever needs more asks the tokenizer. */
static const json_t *id_field(const struct reader *c, const char *field)
{
    const json_t *v = json_object_get(c->text, field);

    return absent(v) ? json_object_get(c->top, field) : v;
}

static void read_ids(struct reader *c, struct shape *s)
{
    const json_t *eos = id_field(c, "eos_token_id");
    const json_t *bos = id_field(c, "bos_token_id");
    size_t n = json_is_array(eos) ? json_array_size(eos) : !absent(eos);

    s->bos = absent(bos)
                 ? -1
                 : int_value(c, "bos_token_id", bos, 0, s->vocab - 1, -1);
    if (n > SHAPE_MAX_EOS) {
        wrong(c, "eos_token_id", eos, "at most 8 ids");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_is_array(eos) ? json_array_get(eos, i) : eos;

        s->eos[s->n_eos++] =
            int_value(c, "eos_token_id", v, 0, s->vocab - 1, 0);
    }
}

static int parse_object(const json_t *top, struct report *rep,
                        struct shape *ret)
{
    const json_t *text = json_object_get(top, "text_config");
    struct reader c = {.rep = rep, .top = top, .text = top, .prefix = ""};

    memset(ret, 0, sizeof(*ret));
    if (text != NULL) {
        if (!json_is_object(text)) {
            wrong(&c, "text_config", text, "an object");
            return -EBADMSG;
        }
        c.text = text;
        c.prefix = "text_config.";
    }
    read_family(&c, ret);
    read_switches(&c, ret);
    read_sizes(&c, ret);
    if (c.bad) {
        return -EBADMSG; /* the lists are measured against these */
    }
    read_attention(&c, ret);
    read_rope(&c, ret);
    read_moe(&c, ret);
    read_limits(&c, ret);
    read_ids(&c, ret);
    return c.bad ? -EBADMSG : 0;
}

int config_parse(const char *text, size_t n, struct report *rep,
                 struct shape *ret, json_t **ret_quant)
{
    json_error_t error;
    json_t *top, *quant;
    struct shape *shape;
    int r;

    if (lfs_is_pointer(text, n)) {
        report_problem(rep, REPORT_CONFIG, "config.json: " LFS_SAID);
        return -EBADMSG;
    }
    r = model_json(text, n, &top, &error);
    if (r == -ENOMEM) {
        return r;
    }
    if (!json_is_object(top)) {
        if (top != NULL) {
            report_problem(rep, REPORT_CONFIG,
                           "config.json: expected an object");
        } else {
            report_problem(rep, REPORT_CONFIG,
                           "config.json: line %d column %d: %s", error.line,
                           error.column, error.text);
        }
        json_decref(top);
        return -EBADMSG;
    }
    shape = malloc(sizeof(*shape));
    if (shape == NULL) {
        json_decref(top);
        return -ENOMEM;
    }
    r = parse_object(top, rep, shape);
    if (r == 0) {
        *ret = *shape;
        if (ret_quant != NULL) {
            quant = json_object_get(top, "quantization_config");
            if (absent(quant)) {
                quant = json_object_get(json_object_get(top, "text_config"),
                                        "quantization_config");
            }
            *ret_quant = absent(quant) ? NULL : json_incref(quant);
        }
    }
    free(shape);
    json_decref(top);
    return r;
}
