/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Schemas to rules. A value must fit a conjunction of schemas: one to begin
 * with, more as $ref and allOf are resolved. Choices (anyOf, oneOf) are made
 * one after another, each on a branch of its own, until only plain schemas are
 * left; those are joined to one shape, and the shape becomes edges.
 *
 * Rules are found again by the conjunction they are of, so a recursive schema
 * is a recursive grammar; they are built from a list of what is wanted, not by
 * recursion, so the depth of a schema costs no stack. Pure.
 */
#include "daemon/text/schema.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/schema_priv.h"
#include "daemon/text/str.h"

#define N_SLOTS 1024u

struct entry {
    struct part *part;
    int n;
    uint32_t rule, next;
    char *path;
};

int schema_refuse(struct schema *s, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    if (s->err == 0) {
        va_start(ap, fmt);
        (void)vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        s->err = why_set(s->why, -EINVAL, "schema%s%s: %s",
                         s->path[0] != '\0' ? " at " : "", s->path, text);
    }
    return s->err;
}

int schema_create(struct schema **ret, const json_t *root, struct jsongram *j,
                  const struct why *why)
{
    struct schema *s = calloc(1, sizeof(*s));

    if (s == NULL) {
        return -ENOMEM;
    }
    s->root = root;
    s->j = j;
    s->why = why;
    s->path = "";
    s->slot = calloc(N_SLOTS, sizeof(*s->slot));
    if (s->slot == NULL) {
        schema_destroy(s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

void schema_destroy(struct schema *s)
{
    if (s == NULL) {
        return;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        free(s->entry[i].part);
        free(s->entry[i].path);
    }
    free(s->entry);
    free(s->slot);
    free(s);
}

/* ---- references ---------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* One step of a JSON pointer in a URI fragment; *p moves to its end. */
static int take_step(const char **p, struct str *step)
{
    const char *q = *p;

    while (*q != '\0' && *q != '/') {
        if (q[0] == '~' && (q[1] == '0' || q[1] == '1')) {
            str_putc(step, q[1] == '0' ? '~' : '/');
            q += 2;
        } else if (q[0] == '%' && hex_digit(q[1]) >= 0 &&
                   hex_digit(q[2]) >= 0) {
            str_putc(step, (char)(hex_digit(q[1]) * 16 + hex_digit(q[2])));
            q += 3;
        } else {
            str_putc(step, *q++);
        }
    }
    str_putc(step, '\0');
    *p = q;
    return step->err;
}

static const json_t *step_into(const json_t *v, const char *step)
{
    char *end;
    unsigned long i;

    if (json_is_object(v)) {
        return json_object_get(v, step);
    }
    i = strtoul(step, &end, 10);
    return *step != '\0' && *end == '\0' ? json_array_get(v, i) : NULL;
}

const json_t *schema_find(struct schema *s, const char *ref)
{
    const json_t *v = s->root;
    const char *p = ref;
    struct str step = {0};

    if (*p++ != '#') {
        (void)schema_refuse(s, "$ref must begin with #: other documents are "
                               "not fetched");
        return NULL;
    }
    while (*p == '/' && v != NULL) {
        p++;
        step.n = 0;
        if (take_step(&p, &step) < 0) {
            s->err = -ENOMEM;
            v = NULL;
        } else {
            v = step_into(v, step.p);
        }
    }
    str_finish(&step);
    if (v == NULL || *p != '\0') {
        (void)schema_refuse(s, "$ref \"%.80s\" leads nowhere", ref);
        return NULL;
    }
    return v;
}

/* ---- rules by what they are of ------------------------------------------- */

static uint32_t hash_all(const struct all *a)
{
    uint64_t h = 1;

    for (int i = 0; i < a->n; i++) {
        h = (h ^ (uint64_t)(uintptr_t)a->part[i].schema) *
            UINT64_C(0x9e3779b97f4a7c15);
        h ^= (h >> 29) + a->part[i].any_done + 2u * a->part[i].one_done;
    }
    return (uint32_t)(h >> 32) % N_SLOTS;
}

static bool same_all(const struct entry *e, const struct all *a)
{
    bool same = e->n == a->n;

    for (int i = 0; i < a->n && same; i++) {
        const struct part *x = &e->part[i], *y = &a->part[i];

        same = x->schema == y->schema && x->any_done == y->any_done &&
               x->one_done == y->one_done;
    }
    return same;
}

uint32_t schema_rule_of(struct schema *s, const struct all *a, const char *path)
{
    uint32_t h = hash_all(a);
    struct entry *e;

    if (s->err != 0) {
        return 0;
    }
    for (uint32_t i = s->slot[h]; i != 0; i = s->entry[i - 1].next) {
        if (same_all(&s->entry[i - 1], a)) {
            return s->entry[i - 1].rule;
        }
    }
    if (s->n == s->cap) {
        uint32_t cap = s->cap > 0 ? 2 * s->cap : 64;

        e = realloc(s->entry, cap * sizeof(*e));
        if (e == NULL) {
            s->err = -ENOMEM;
            return 0;
        }
        s->entry = e;
        s->cap = cap;
    }
    e = &s->entry[s->n];
    e->n = a->n;
    e->part = malloc((size_t)(a->n + 1) * sizeof(*e->part));
    e->path = malloc(SCHEMA_MAX_PATH);
    if (e->part == NULL || e->path == NULL) {
        free(e->part);
        free(e->path);
        s->err = -ENOMEM;
        return 0;
    }
    if (a->n > 0) {
        memcpy(e->part, a->part, (size_t)a->n * sizeof(*e->part));
    }
    (void)snprintf(e->path, SCHEMA_MAX_PATH, "%s", path);
    e->rule = gram_rule(s->j->g);
    e->next = s->slot[h];
    s->slot[h] = ++s->n;
    return e->rule;
}

uint32_t schema_rule(struct schema *s, const json_t *schema, const char *path)
{
    struct all a = {.n = 1};

    a.part[0] = (struct part){.schema = schema};
    return schema_rule_of(s, &a, path);
}

/* ---- one rule ------------------------------------------------------------ */

static const struct part *find_part(const struct all *a, const json_t *schema)
{
    for (int i = 0; i < a->n; i++) {
        if (a->part[i].schema == schema) {
            return &a->part[i];
        }
    }
    return NULL;
}

static int add_part(struct schema *s, struct all *a, const json_t *schema)
{
    const struct part *old;

    if (!json_is_object(schema) && !json_is_boolean(schema)) {
        return schema_refuse(s, "a schema must be an object, true or false");
    }
    old = find_part(a, schema);
    if (old != NULL && (old->any_done || old->one_done)) {
        return schema_refuse(s, "a choice that leads back to itself");
    }
    if (old != NULL) {
        return 0;
    }
    if (a->n == SCHEMA_MAX_PARTS) {
        return schema_refuse(s, "more than %d schemas for one value",
                             SCHEMA_MAX_PARTS);
    }
    a->part[a->n++] = (struct part){.schema = schema};
    return 0;
}

/* A $ref that leads back to itself over nothing but others says nothing. */
static bool is_loop(struct schema *s, const json_t *v)
{
    const json_t *at = v;

    for (int i = 0; i < SCHEMA_MAX_PARTS && s->err == 0; i++) {
        const json_t *ref = json_object_get(at, "$ref");

        if (!json_is_string(ref)) {
            return false;
        }
        at = schema_find(s, json_string_value(ref));
        if (at == v) {
            return true;
        }
    }
    return false;
}

/* Adds what $ref and allOf lead to, theirs included: each schema once. */
static int resolve(struct schema *s, struct all *a)
{
    for (; a->n_resolved < a->n && s->err == 0; a->n_resolved++) {
        const json_t *v = a->part[a->n_resolved].schema;
        const json_t *ref = json_object_get(v, "$ref");
        const json_t *list = json_object_get(v, "allOf"), *x;
        size_t k;

        if (ref != NULL) {
            x = json_is_string(ref) ? schema_find(s, json_string_value(ref))
                                    : NULL;
            if (x == NULL) {
                return schema_refuse(s, "$ref must be a string");
            }
            if (is_loop(s, v)) {
                return schema_refuse(s, "$ref leads back to itself");
            }
            (void)add_part(s, a, x);
        }
        if (list != NULL && !json_is_array(list)) {
            return schema_refuse(s, "allOf must be a list");
        }
        json_array_foreach(list, k, x)
        {
            (void)add_part(s, a, x);
        }
    }
    return s->err;
}

static void build(struct schema *s, const struct all *from_parts, uint32_t from,
                  uint32_t to);

/* A branch for each choice; false: the part has none, or not any more. */
static bool branch(struct schema *s, const struct all *a, int i, bool one,
                   uint32_t from, uint32_t to)
{
    const char *key = one ? "oneOf" : "anyOf";
    const json_t *list = json_object_get(a->part[i].schema, key), *x;
    bool done = one ? a->part[i].one_done : a->part[i].any_done;
    size_t k;

    if (list == NULL || done) {
        return false;
    }
    if (!json_is_array(list) || json_array_size(list) == 0) {
        (void)schema_refuse(s, "%s must be a list of schemas", key);
        return true;
    }
    if (one) {
        (void)schema_one_of(s, list);
    }
    json_array_foreach(list, k, x)
    {
        struct all b = *a;

        if (s->n_choices-- <= 0) {
            (void)schema_refuse(s,
                                "more than %d choices of anyOf and oneOf "
                                "for one value",
                                SCHEMA_MAX_CHOICES);
        }
        if (one) {
            b.part[i].one_done = true;
        } else {
            b.part[i].any_done = true;
        }
        (void)add_part(s, &b, x);
        build(s, &b, from, to);
        if (s->err != 0) {
            break;
        }
    }
    return true;
}

static void put_values(struct schema *s, const struct shape *x, uint32_t from,
                       uint32_t to)
{
    struct jsongram_texts t = {0};
    const json_t *v;
    size_t i, n = 0;
    char *p = NULL;

    json_array_foreach(x->values, i, v)
    {
        if (jsongram_write(v, s->j->form, &p, &n) < 0) {
            t.err = -ENOMEM;
            break;
        }
        jsongram_texts_add(&t, p, n);
        free(p);
    }
    jsongram_texts_put(&t, s->j->g, from, to);
    jsongram_texts_finish(&t);
}

static bool no_inside(const struct all *a)
{
    for (int i = 0; i < a->n; i++) {
        if (!json_is_true(a->part[i].schema) &&
            json_object_size(a->part[i].schema) > 0) {
            return false;
        }
    }
    return true;
}

static void build_plain(struct schema *s, const struct all *a, uint32_t from,
                        uint32_t to)
{
    static const struct {
        unsigned type;
        const char *text;
    } word[] = {
        {TYPE_NULL, "null"}, {TYPE_BOOLEAN, "true"}, {TYPE_BOOLEAN, "false"}};
    struct gram *g = s->j->g;
    struct shape x;

    if (no_inside(a)) {
        gram_call(g, from, jsongram_any(s->j), to);
        return;
    }
    if (schema_shape(s, a, &x) < 0) {
        schema_shape_finish(&x);
        return;
    }
    if (x.values != NULL) {
        put_values(s, &x, from, to);
        schema_shape_finish(&x);
        return;
    }
    for (size_t i = 0; i < sizeof(word) / sizeof(word[0]); i++) {
        if ((x.types & word[i].type) != 0) {
            gram_eps(g, gram_puts(g, from, word[i].text), to);
        }
    }
    if ((x.types & (TYPE_INTEGER | TYPE_FRACTION)) != 0) {
        schema_number(s, &x, from, to);
    }
    if ((x.types & TYPE_STRING) != 0) {
        schema_string(s, &x, from, to);
    }
    if ((x.types & TYPE_ARRAY) != 0) {
        schema_array(s, a, &x, from, to);
    }
    if ((x.types & TYPE_OBJECT) != 0) {
        schema_object(s, a, from, to);
    }
    schema_shape_finish(&x);
}

static void build(struct schema *s, const struct all *parts, uint32_t from,
                  uint32_t to)
{
    struct all a = *parts;

    if (resolve(s, &a) < 0) {
        return;
    }
    for (int i = 0; i < a.n; i++) {
        if (json_is_false(a.part[i].schema)) {
            return; /* nothing fits */
        }
    }
    for (int i = 0; i < a.n; i++) {
        if (branch(s, &a, i, false, from, to) ||
            branch(s, &a, i, true, from, to)) {
            return;
        }
    }
    build_plain(s, &a, from, to);
}

static void build_entry(struct schema *s, uint32_t i)
{
    struct gram *g = s->j->g;
    struct entry e = s->entry[i]; /* the list moves while it grows */
    struct all *a = malloc(sizeof(*a));
    uint32_t end = gram_node(g);

    if (a == NULL) {
        s->err = -ENOMEM;
        return;
    }
    a->n = e.n;
    a->n_resolved = 0;
    memcpy(a->part, e.part, (size_t)e.n * sizeof(*a->part));
    s->path = e.path;
    s->n_choices = SCHEMA_MAX_CHOICES;
    gram_final(g, end);
    if (g->err == 0 && s->err == 0) {
        for (int k = 0; k < a->n; k++) {
            if (!json_is_object(a->part[k].schema) &&
                !json_is_boolean(a->part[k].schema)) {
                (void)schema_refuse(
                    s, "a schema must be an object, true or false");
            }
        }
        build(s, a, g->rule[e.rule].start, end);
    }
    free(a);
    s->path = "";
}

int schema_run(struct schema *s)
{
    while (s->done < s->n && s->err == 0 && s->j->g->err == 0) {
        build_entry(s, s->done++);
    }
    if (s->err == 0 && s->j->g->err == -E2BIG) {
        s->err = why_set(s->why, -E2BIG, "the schema is too large");
    }
    return s->err != 0 ? s->err : s->j->g->err;
}
