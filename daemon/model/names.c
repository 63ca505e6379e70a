/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Reads and writes tensor names. Owns the knowledge of how the releases spell
 * them (model-spec 3.1, 4.7, 5, 8.2); knows no shape and no file. Pure.
 *
 * What matters: a name means exactly one thing or is unknown. Nothing matches
 * by a mere beginning ("moe.gate" is the router, "moe.gate_proj" the experts),
 * and an expert has one spelling of its number.
 */
#include "daemon/model/names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Module paths below "layers.N.", with the experts' number taken out. */
static const struct {
    const char *path;
    enum role role;
} modules[] = {
    {"input_layernorm", ROLE_ATTN_NORM},
    {"self_attn.q_proj", ROLE_Q},
    {"self_attn.k_proj", ROLE_K},
    {"self_attn.v_proj", ROLE_V},
    {"self_attn.g_proj", ROLE_G},
    {"self_attn.q_norm", ROLE_Q_NORM},
    {"self_attn.k_norm", ROLE_K_NORM},
    {"self_attn.o_proj", ROLE_O},
    {"post_attention_layernorm", ROLE_FFN_NORM},
    {"mlp.gate_proj", ROLE_GATE},
    {"mlp.up_proj", ROLE_UP},
    {"mlp.down_proj", ROLE_DOWN},
    {"moe.gate", ROLE_ROUTER},
    {"moe.router_bias", ROLE_ROUTER_BIAS},
    {"moe.gate_proj", ROLE_EXPERT_GATE},
    {"moe.up_proj", ROLE_EXPERT_UP},
    {"moe.down_proj", ROLE_EXPERT_DOWN},
    {"share_expert.gate_proj", ROLE_SHARED_GATE},
    {"share_expert.up_proj", ROLE_SHARED_UP},
    {"share_expert.down_proj", ROLE_SHARED_DOWN},
    {"enorm", ROLE_ENORM},
    {"hnorm", ROLE_HNORM},
    {"eh_proj", ROLE_EH_PROJ},
    {"shared_head.norm", ROLE_MTP_NORM},
    {"shared_head.output", ROLE_MTP_HEAD},
    {"shared_head.head", ROLE_MTP_HEAD},
};

static const char *const part_suffix[N_PARTS] = {
    [PART_WEIGHT] = "weight",
    [PART_PACKED] = "weight_packed",
    [PART_SCALE] = "weight_scale",
    [PART_SCALE_INV] = "weight_scale_inv",
    [PART_SCALE_2] = "weight_scale_2",
    [PART_GLOBAL_SCALE] = "weight_global_scale",
};

/* Parameters that serving code registers beside attention and activations; with
 * a BF16 KV cache and BF16 activations they change nothing, whatever their
 * shape, wherever they stand. */
static const char *const inert[] = {
    ".k_scale",      ".v_scale",
    ".q_scale",      ".prob_scale",
    ".kv_scale",     ".k_zero_point",
    ".v_zero_point", ".q_zero_point",
    ".input_scale",  ".input_global_scale",
};

static const char *const vision[] = {
    "vision_model.",
    "vit_large_projector.",
    "model.vision_model.",
    "model.vit_large_projector.",
};

/* Longest first: "model." begins the first of them. */
static const char *const prefixes[] = {
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "model.",
};

bool role_is_expert(enum role r)
{
    return r == ROLE_EXPERT_GATE || r == ROLE_EXPERT_UP ||
           r == ROLE_EXPERT_DOWN;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Steps over a literal. */
static bool eat(const char **s, const char *what)
{
    size_t n = strlen(what);

    if (strncmp(*s, what, n) != 0) {
        return false;
    }
    *s += n;
    return true;
}

/* Steps over a number as printf writes it, and the dot after it. */
static bool eat_number(const char **s, int *ret)
{
    const char *p = *s;
    int n = 0, digits = 0;

    while (isdigit((unsigned char)*p) && digits < 7) {
        n = n * 10 + (*p++ - '0');
        digits++;
    }
    if (digits == 0 || *p != '.' || (digits > 1 && **s == '0')) {
        return false;
    }
    *s = p + 1;
    *ret = n;
    return true;
}

static bool suffix_part(const char *suffix, enum part *ret)
{
    for (int i = 0; i < N_PARTS; i++) {
        if (strcmp(suffix, part_suffix[i]) == 0) {
            *ret = (enum part)i;
            return true;
        }
    }
    return false;
}

/* path, n characters of it, is one of modules. */
static bool find_module(const char *path, size_t n, enum role *ret)
{
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        if (strlen(modules[i].path) == n &&
            memcmp(modules[i].path, path, n) == 0) {
            *ret = modules[i].role;
            return true;
        }
    }
    return false;
}

/* What follows "layers.N.". */
static bool parse_in_layer(const char *s, struct tensor_name *t)
{
    char path[128];
    const char *dot;
    bool transformer;

    t->mtp_only = eat(&s, "mtp_block.");
    transformer = eat(&s, "transformer.");
    t->mtp_only = t->mtp_only || transformer;
    if (strcmp(s, "moe.router_bias") == 0) {
        t->role = ROLE_ROUTER_BIAS;
        t->part = PART_WEIGHT;
        return true;
    }
    dot = strrchr(s, '.');
    if (dot == NULL || !suffix_part(dot + 1, &t->part)) {
        return false;
    }
    if (strncmp(s, "moe.", 4) == 0) {
        const char *rest = s + 4;

        t->experts = eat(&rest, "experts.") ? EXPERTS_LISTED : EXPERTS_BARE;
        if (eat_number(&rest, &t->expert) && rest < dot) {
            int n = snprintf(path, sizeof(path), "moe.%.*s", (int)(dot - rest),
                             rest);

            return n > 0 && (size_t)n < sizeof(path) &&
                   find_module(path, (size_t)n, &t->role) &&
                   role_is_expert(t->role);
        }
        t->expert = -1;
        t->experts = EXPERTS_FUSED;
    }
    if (!find_module(s, (size_t)(dot - s), &t->role) ||
        t->role == ROLE_ROUTER_BIAS) {
        return false;
    }
    if (t->role >= ROLE_FIRST_OF_MTP) {
        t->mtp_only = true;
    }
    /* transformer. stands before the shared head only. */
    return !transformer || t->role == ROLE_MTP_NORM || t->role == ROLE_MTP_HEAD;
}

static bool parse_tensor(const char *s, struct tensor_name *t)
{
    const char *dot = strrchr(s, '.');

    if (eat(&s, "layers.")) {
        return eat_number(&s, &t->layer) && parse_in_layer(s, t);
    }
    if (dot == NULL || !suffix_part(dot + 1, &t->part)) {
        return false;
    }
    t->role = eat(&s, "embed_tokens.") ? ROLE_EMBED
              : eat(&s, "norm.")       ? ROLE_NORM
              : eat(&s, "lm_head.")    ? ROLE_HEAD
                                       : N_ROLES;
    return t->role != N_ROLES && s == dot + 1;
}

void name_parse(const char *name, struct tensor_name *ret)
{
    const char *s = name, *dot = strrchr(name, '.');

    memset(ret, 0, sizeof(*ret));
    ret->layer = -1;
    ret->expert = -1;
    ret->n_module = dot != NULL ? (size_t)(dot - name) : strlen(name);
    for (size_t i = 0; i < sizeof(inert) / sizeof(inert[0]); i++) {
        if (ends_with(name, inert[i])) {
            ret->kind = NAME_INERT;
            return;
        }
    }
    for (size_t i = 0; i < sizeof(vision) / sizeof(vision[0]); i++) {
        if (strncmp(name, vision[i], strlen(vision[i])) == 0) {
            ret->kind = NAME_VISION;
            return;
        }
    }
    if (ends_with(name, ".weight_shape")) {
        ret->kind = NAME_SHAPE;
        return;
    }
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (eat(&s, prefixes[i])) {
            break;
        }
    }
    ret->n_prefix = (size_t)(s - name);
    ret->kind = parse_tensor(s, ret) ? NAME_TENSOR : NAME_UNKNOWN;
}

static const char *module_path(enum role r)
{
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        if (modules[i].role == r) {
            return modules[i].path;
        }
    }
    return r == ROLE_EMBED  ? "embed_tokens"
           : r == ROLE_NORM ? "norm"
                            : "lm_head";
}

const char *name_format(char *buf, size_t n, int layer, bool mtp,
                        enum role role, int expert, enum expert_names experts,
                        enum part part)
{
    const char *path = module_path(role), *dot = ".", *suffix;
    char number[32] = "";

    suffix = part_suffix[part];
    if (role == ROLE_ROUTER_BIAS) {
        dot = suffix = "";
    }
    if (expert >= 0 && experts != EXPERTS_FUSED) {
        path += strlen("moe.");
        snprintf(number, sizeof(number),
                 experts == EXPERTS_LISTED ? "moe.experts.%d." : "moe.%d.",
                 expert);
    }
    if (layer < 0) {
        snprintf(buf, n, "%s%s%s", path, dot, suffix);
    } else {
        snprintf(buf, n, "layers.%d.%s%s%s%s%s", layer,
                 mtp && (role == ROLE_MTP_NORM || role == ROLE_MTP_HEAD)
                     ? "transformer."
                     : "",
                 number, path, dot, suffix);
    }
    return buf;
}
