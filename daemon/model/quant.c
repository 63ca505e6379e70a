/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Holds quantization_config against the tensors. Owns the knowledge of how the
 * tools write it: compressed-tensors (targets and ignore: names, "re:" and a
 * Python regular expression, or the class Linear), ModelOpt and Quark (shell
 * patterns), official FP8 (names of another program, of no use here). Pure.
 *
 * What matters: this decides nothing. A form follows from dtypes and shapes
 * (fill.c); where the configuration says otherwise, the log says so, once, with
 * the number of weights and the first of them.
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "daemon/model/quant.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pcre2.h>

#define MAX_PATTERNS 4096
#define MATCH_LIMIT 100000 /* steps; a pattern needs a few hundred */

/* A list of "targets" or "ignore", ready to be matched. */
struct patterns {
    int n;
    struct {
        const char *text;
        pcre2_code *re; /* NULL: a name or a shell pattern */
    } * p;
};

static void patterns_finish(struct patterns *l)
{
    for (int i = 0; i < l->n; i++) {
        pcre2_code_free(l->p[i].re);
    }
    free(l->p);
    l->p = NULL;
    l->n = 0;
}

/* Adds the strings of a list; those that are no pattern are said and skipped.
 */
static void patterns_add(struct patterns *l, const json_t *list,
                         struct report *rep)
{
    const json_t *v;
    size_t i, n = json_array_size(list);
    void *grown;

    if (n == 0 || n > MAX_PATTERNS) {
        return;
    }
    grown = realloc(l->p, ((size_t)l->n + n) * sizeof(*l->p));
    if (grown == NULL) {
        report_no_memory(rep, "config.json");
        return;
    }
    l->p = grown;
    json_array_foreach(list, i, v)
    {
        const char *text = json_string_value(v);
        pcre2_code *re = NULL;
        int error;
        PCRE2_SIZE at;

        if (text == NULL) {
            continue;
        }
        if (strncmp(text, "re:", 3) == 0) {
            re = pcre2_compile((PCRE2_SPTR)text + 3, PCRE2_ZERO_TERMINATED,
                               PCRE2_ANCHORED, &error, &at, NULL);
            if (re == NULL) {
                report_note(rep,
                            "config.json: quantization_config: %s: not a "
                            "pattern, skipped",
                            text);
                continue;
            }
        }
        l->p[l->n].text = text;
        l->p[l->n++].re = re;
    }
}

static bool matches(const struct patterns *l, const char *name,
                    pcre2_match_data *md, pcre2_match_context *mc)
{
    for (int i = 0; i < l->n; i++) {
        const char *text = l->p[i].text;

        if (l->p[i].re != NULL) {
            if (pcre2_match(l->p[i].re, (PCRE2_SPTR)name, strlen(name), 0, 0,
                            md, mc) >= 0) {
                return true;
            }
        } else if (strcmp(text, name) == 0 || strcmp(text, "Linear") == 0 ||
                   (strpbrk(text, "*?[") != NULL &&
                    fnmatch(text, name, 0) == 0)) {
            return true;
        }
    }
    return false;
}

static bool is_packed(const struct slot *slot)
{
    return slot->scheme != SCHEME_BF16 && slot->scheme != SCHEME_F32;
}

/* The module that a slot's numbers belong to, as this checkpoint spells it. */
static bool module_name(const struct slot *slot, char *buf, size_t n)
{
    const struct slot_part *parts =
        slot->each != NULL ? slot->each[0] : slot->whole;
    const struct st_tensor *t = parts[slot_forms[slot->scheme].numbers].t;
    struct tensor_name name;

    if (t == NULL) {
        return false;
    }
    name_parse(t->name, &name);
    snprintf(buf, n, "%.*s", (int)name.n_module, t->name);
    return true;
}

/* Matrices that quantisation could concern: all but the table and vectors. */
static bool is_linear(const struct slot *slot)
{
    return slot->filled && slot->role != ROLE_EMBED && slot->desc.rows > 1;
}

/* Counts the weights for which the lists and the tensors disagree. */
static void compare(const struct patterns *targets,
                    const struct patterns *ignore, const struct slots *s,
                    struct report *rep)
{
    pcre2_match_context *mc = pcre2_match_context_create(NULL);
    pcre2_match_data *md = pcre2_match_data_create(1, NULL);
    char name[SLOT_MAX_NAME], first[2][SLOT_MAX_NAME];
    int n[2] = {0, 0}; /* said to be plain and packed, said packed and plain */

    if (mc != NULL && md != NULL) {
        pcre2_set_match_limit(mc, MATCH_LIMIT);
        pcre2_set_depth_limit(mc, MATCH_LIMIT);
    }
    for (int i = 0; mc != NULL && md != NULL && i < s->n; i++) {
        const struct slot *slot = &s->slot[i];
        bool said;

        if (!is_linear(slot) || !module_name(slot, name, sizeof(name))) {
            continue;
        }
        said = matches(targets, name, md, mc) && !matches(ignore, name, md, mc);
        if (said != is_packed(slot) && n[said]++ == 0) {
            memcpy(first[said], name, sizeof(name));
        }
    }
    pcre2_match_data_free(md);
    pcre2_match_context_free(mc);
    if (n[0] > 0) {
        report_note(rep,
                    "%d weights are packed although quantization_config "
                    "leaves them out (the first is %s): the tensors count",
                    n[0], first[0]);
    }
    if (n[1] > 0) {
        report_note(rep,
                    "%d weights are not packed although quantization_config "
                    "names them (the first is %s): the tensors count",
                    n[1], first[1]);
    }
}

/* A group's block size against the one that the tensors have. */
static void check_group_size(const json_t *group, const struct slots *s,
                             struct report *rep)
{
    const json_t *v =
        json_object_get(json_object_get(group, "weights"), "group_size");

    for (int i = 0; json_is_integer(v) && i < s->n; i++) {
        const struct slot *slot = &s->slot[i];
        int block = slot_forms[slot->scheme].block_cols;

        if (slot->filled && slot_forms[slot->scheme].per_byte == 2 &&
            json_integer_value(v) != block) {
            report_note(rep,
                        "quantization_config has group_size %lld, the tensors "
                        "have blocks of %d: the tensors count",
                        (long long)json_integer_value(v), block);
            return;
        }
    }
}

/* compressed-tensors, and ModelOpt and Quark, whose patterns are others. */
static void check_groups(const json_t *config, const struct slots *s,
                         struct report *rep)
{
    json_t *groups = json_object_get(config, "config_groups");
    struct patterns targets = {0}, ignore = {0};
    const char *key;
    json_t *group;

    json_object_foreach(groups, key, group)
    {
        patterns_add(&targets, json_object_get(group, "targets"), rep);
        check_group_size(group, s, rep);
    }
    patterns_add(&ignore, json_object_get(config, "ignore"), rep);
    patterns_add(&ignore, json_object_get(config, "exclude"), rep);
    patterns_add(&ignore, json_object_get(config, "exclude_modules"), rep);
    if (targets.n > 0) {
        compare(&targets, &ignore, s, rep);
    }
    patterns_finish(&targets);
    patterns_finish(&ignore);
}

static void check_kv_scheme(const json_t *config, struct report *rep)
{
    static const char *const keys[] = {"kv_cache_scheme",
                                       "kv_cache_quant_algo"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const json_t *v = json_object_get(config, keys[i]);

        if (v != NULL && !json_is_null(v)) {
            report_note(rep,
                        "quantization_config asks for a quantised KV cache "
                        "(%s): the KV cache stays BF16",
                        keys[i]);
        }
    }
}

/* A configuration without packed tensors, or the reverse. */
static void check_presence(const json_t *config, const struct slots *s,
                           struct report *rep)
{
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        n += s->slot[i].filled && is_packed(&s->slot[i]);
    }
    if (config == NULL && n > 0) {
        report_note(rep,
                    "%d weights are packed although config.json has no "
                    "quantization_config: the tensors count",
                    n);
    } else if (config != NULL && n == 0) {
        report_note(rep, "config.json has a quantization_config, yet no weight "
                         "is packed: the tensors count");
    }
}

void quant_check(const json_t *config, const struct slots *s,
                 struct report *rep)
{
    static const char *const methods[] = {"compressed-tensors", "fp8",
                                          "modelopt", "quark"};
    const char *method =
        json_string_value(json_object_get(config, "quant_method"));
    bool known = false;

    check_presence(config, s, rep);
    if (config == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        known = known || (method != NULL && strcmp(method, methods[i]) == 0);
    }
    if (!known) {
        report_problem(rep, REPORT_CONFIG,
                       "config.json: quantization_config.quant_method: "
                       "expected compressed-tensors, fp8, modelopt or quark, "
                       "found %s",
                       method != NULL ? method : "nothing");
        return;
    }
    check_kv_scheme(config, rep);
    check_groups(config, s, rep);
}
