/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The inside of objects, arrays, strings and numbers, as edges. Pure.
 *
 * An object is a row of places, one for each property, in two lanes: nothing
 * written yet, or something, which decides whether a comma comes first. An
 * optional property can be passed over in either lane.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/pattern.h"
#include "daemon/text/schema_priv.h"
#include "daemon/text/utf8.h"

/* ---- strings ------------------------------------------------------------- */

#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d{2}|00[1-9]\\d|000[1-9])"
#define DATE                                                          \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"     \
    "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" \
    "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|"                     \
    "(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define TIME                                               \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?" \
    "(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define UUID                                                       \
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-" \
    "[0-9a-fA-F]{12}"

static const char *format_pattern(const char *format)
{
    return strcmp(format, "date") == 0        ? DATE
           : strcmp(format, "time") == 0      ? TIME
           : strcmp(format, "date-time") == 0 ? DATE "T" TIME
                                              : UUID;
}

void schema_string(struct schema *s, const struct shape *x, uint32_t from,
                   uint32_t to)
{
    struct gram *g = s->j->g;
    struct pattern_args a = {
        .form = s->j->form,
        .min_chars = x->min_length,
        .max_chars = x->max_length,
    };
    char text[200] = "";
    const struct why why = {text, sizeof(text)};
    uint32_t open, close;
    int r;

    if (x->min_length > x->max_length) {
        return; /* nothing fits */
    }
    if (x->pattern == NULL && x->format == NULL) {
        jsongram_string(s->j, from, x->min_length, x->max_length, to);
        return;
    }
    if (x->pattern != NULL && x->format != NULL) {
        (void)schema_refuse(s, "pattern together with format is not supported");
        return;
    }
    if (x->pattern != NULL) {
        a.text = json_string_value(x->pattern);
        a.n = json_string_length(x->pattern);
    } else {
        a.text = format_pattern(x->format);
        a.n = strlen(a.text);
        a.whole = true;
    }
    open = gram_node(g);
    close = gram_node(g);
    gram_bytes(g, from, '"', '"', open);
    r = pattern_build(&a, g, open, close, &why);
    if (r == -EINVAL || (r == -E2BIG && text[0] != '\0')) {
        (void)schema_refuse(s, "%s", text);
    }
    gram_bytes(g, close, '"', '"', to);
}

/* ---- numbers ------------------------------------------------------------- */

/* A dot and a fraction that is not zero. */
static void fraction(struct gram *g, uint32_t from, uint32_t to)
{
    uint32_t dot = gram_node(g), some = gram_node(g);
    uint32_t zero = gram_rule(g), digit = gram_rule(g), end;

    end = gram_node(g);
    gram_final(g, end);
    if (g->err != 0) {
        return;
    }
    gram_bytes(g, g->rule[zero].start, '0', '0', end);
    gram_bytes(g, g->rule[digit].start, '0', '9', end);
    gram_bytes(g, from, '.', '.', dot);
    from = gram_node(g);
    gram_repeat(g, dot, zero, 0, JSONGRAM_MAX_DIGITS / 2, from);
    gram_bytes(g, from, '1', '9', some);
    gram_repeat(g, some, digit, 0, JSONGRAM_MAX_DIGITS / 2, to);
}

/* Between the limits: integers, and what lies between two of them. */
static void limited_number(struct gram *g, const struct shape *x, uint32_t from,
                           uint32_t to)
{
    const int64_t most = 999999999999999999, zero = 0;
    int64_t lo = x->has_lo ? x->lo : -most, hi = x->has_hi ? x->hi : most;
    uint32_t whole = gram_node(g), minus = gram_node(g);

    if ((x->types & TYPE_INTEGER) != 0) {
        jsongram_range(g, from, x->has_lo ? &x->lo : NULL,
                       x->has_hi ? &x->hi : NULL, to);
    }
    if ((x->types & TYPE_FRACTION) == 0 || lo >= hi) {
        return;
    }
    fraction(g, whole, to);
    if (hi > 0) {
        int64_t a = lo > 0 ? lo : zero, b = hi - 1;

        jsongram_range(g, from, &a, &b, whole);
    }
    if (lo < 0) {
        int64_t a = hi < 0 ? -hi : zero, b = -(lo + 1);

        gram_bytes(g, from, '-', '-', minus);
        jsongram_range(g, minus, &a, &b, whole);
    }
}

void schema_number(struct schema *s, const struct shape *x, uint32_t from,
                   uint32_t to)
{
    struct gram *g = s->j->g;

    if (!x->has_lo && !x->has_hi) {
        if ((x->types & TYPE_FRACTION) != 0) {
            jsongram_number(s->j, from, to);
        } else {
            jsongram_integer(s->j, from, to);
        }
        return;
    }
    if (x->fraction_limits && (x->types & TYPE_FRACTION) != 0) {
        (void)schema_refuse(s, "limits of a number that are exclusive or not "
                               "whole are not supported: use whole ones, or "
                               "integer");
        return;
    }
    limited_number(g, x, from, to);
}

/* ---- objects ------------------------------------------------------------- */

struct property {
    const char *name;
    bool required, forbidden;
};

struct properties {
    struct property *p;
    size_t n, cap;
    bool any_named, extra, no_extra;
};

static struct property *find(struct properties *ps, const char *name)
{
    for (size_t i = 0; i < ps->n; i++) {
        if (strcmp(ps->p[i].name, name) == 0) {
            return &ps->p[i];
        }
    }
    return NULL;
}

static struct property *add_property(struct schema *s, struct properties *ps,
                                     const char *name)
{
    struct property *p = ps->n > 0 ? find(ps, name) : NULL;

    if (p != NULL) {
        return p;
    }
    if (ps->n == ps->cap) {
        size_t cap = ps->cap > 0 ? 2 * ps->cap : 16;

        p = realloc(ps->p, cap * sizeof(*p));
        if (p == NULL) {
            s->err = -ENOMEM;
            return NULL;
        }
        ps->p = p;
        ps->cap = cap;
    }
    ps->p[ps->n] = (struct property){.name = name};
    return &ps->p[ps->n++];
}

static void read_part(struct schema *s, const json_t *v, struct properties *ps)
{
    const json_t *named = json_object_get(v, "properties");
    const json_t *required = json_object_get(v, "required");
    const json_t *extra = json_object_get(v, "additionalProperties");
    const char *name;
    json_t *x;
    size_t i;

    if (named != NULL && !json_is_object(named)) {
        (void)schema_refuse(s, "properties must be an object");
    }
    if (required != NULL && !json_is_array(required)) {
        (void)schema_refuse(s, "required must be a list");
    }
    json_object_foreach((json_t *)named, name, x)
    {
        (void)add_property(s, ps, name);
    }
    json_array_foreach(required, i, x)
    {
        struct property *p = NULL;

        if (!json_is_string(x)) {
            (void)schema_refuse(s, "required must be a list of names");
        } else {
            p = add_property(s, ps, json_string_value(x));
        }
        if (p != NULL) {
            p->required = true;
        }
    }
    ps->any_named |= named != NULL;
    ps->no_extra |= json_is_false(extra);
    ps->extra |= extra != NULL && !json_is_false(extra);
}

/* All that the value of one property must fit; NULL: of any other one. */
static bool parts_of(const struct all *a, const char *name, struct all *ret)
{
    ret->n = 0;
    for (int i = 0; i < a->n; i++) {
        const json_t *v = a->part[i].schema;
        const json_t *x =
            name == NULL
                ? NULL
                : json_object_get(json_object_get(v, "properties"), name);

        if (x == NULL) {
            x = json_object_get(v, "additionalProperties");
            if (json_is_false(x)) {
                return false;
            }
        }
        if (x != NULL) {
            ret->part[ret->n++] = (struct part){.schema = x};
        }
    }
    return true;
}

/* ---- keys that are none of some names ------------------------------------
 *
 * Plain characters, unescaped, so that a key is written in one way only.
 */

/* Characters of a key that the schema does not name. */
#define EXTRA_KEY_CHARS 64

struct others {
    struct gram *g;
    struct jsongram_texts names; /* sorted */
    struct charset plain;
    uint32_t rest, to;
};

static uint32_t char_at(const struct jsongram_text *x, size_t at, int *ret_n)
{
    static const uint8_t keep[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const uint8_t *p = (const uint8_t *)x->p + at;
    int n = utf8_char(p, x->n - at);
    uint32_t c = p[0] & keep[n];

    for (int i = 1; i < n; i++) {
        c = c << 6 | (p[i] & 0x3f);
    }
    *ret_n = n > 0 ? n : 1;
    return c;
}

/* From a node that the first `at` bytes of names lo..hi-1 lead to. */
static void put_others(struct others *o, uint32_t lo, uint32_t hi, size_t at,
                       uint32_t from)
{
    struct charset taken = {0};
    bool is_name = false;

    while (lo < hi && o->g->err == 0) {
        const struct jsongram_text *x = &o->names.text[lo];
        uint32_t end = lo + 1, c;
        int n;

        if (x->n == at) {
            is_name = true;
            lo++;
            continue;
        }
        c = char_at(x, at, &n);
        while (end < hi && o->names.text[end].n >= at + (size_t)n &&
               memcmp(o->names.text[end].p + at, x->p + at, (size_t)n) == 0) {
            end++;
        }
        charset_add(&taken, c, c);
        put_others(o, lo, end, at + (size_t)n,
                   gram_text(o->g, from, x->p + at, (size_t)n));
        lo = end;
    }
    /* Any other character, then whatever. */
    charset_invert(&taken);
    charset_keep(&taken, &o->plain);
    charset_edges(&taken, o->g, CHARSET_UTF8, from, o->rest);
    charset_finish(&taken);
    if (at > 0 && !is_name) {
        gram_bytes(o->g, from, '"', '"', o->to);
    }
}

static bool is_plain(const char *name, enum charset_form form)
{
    for (; *name != '\0'; name++) {
        if ((uint8_t)*name < 0x20 || *name == '"' || *name == '\\' ||
            (*name == '<' && form == CHARSET_JSON_XML)) {
            return false;
        }
    }
    return true;
}

static void put_other_key(struct schema *s, const struct properties *ps,
                          uint32_t from, uint32_t to)
{
    struct others o = {.g = s->j->g, .rest = gram_node(s->j->g), .to = to};
    uint32_t open = gram_node(o.g), close = gram_node(o.g);

    charset_add(&o.plain, ' ', '!');
    charset_add(&o.plain, '#', s->j->form == CHARSET_JSON_XML ? ';' : '[');
    charset_add(&o.plain, s->j->form == CHARSET_JSON_XML ? '=' : '[', '[');
    charset_add(&o.plain, ']', CHARSET_LAST);
    charset_normalise(&o.plain);
    for (size_t i = 0; i < ps->n; i++) {
        if (is_plain(ps->p[i].name, s->j->form)) {
            jsongram_texts_add(&o.names, ps->p[i].name, strlen(ps->p[i].name));
        }
    }
    if (o.names.err != 0) {
        s->err = o.names.err;
    } else {
        jsongram_texts_sort(&o.names);
        gram_bytes(o.g, from, '"', '"', open);
        put_others(&o, 0, o.names.n, 0, open);
        pattern_chars(o.g, &o.plain, CHARSET_UTF8, o.rest, 0, EXTRA_KEY_CHARS,
                      close);
        gram_bytes(o.g, close, '"', '"', to);
    }
    charset_finish(&o.plain);
    jsongram_texts_finish(&o.names);
}

/* The rule of a property's value. */
static uint32_t value_rule(struct schema *s, const struct all *parts,
                           const char *name)
{
    char path[SCHEMA_MAX_PATH];

    if (parts->n == 0) {
        return jsongram_any(s->j);
    }
    (void)snprintf(path, sizeof(path), "%.100s/%.40s", s->path, name);
    return schema_rule_of(s, parts, path);
}

static void put_key(struct schema *s, const char *name, uint32_t from,
                    uint32_t to)
{
    struct gram *g = s->j->g;
    json_t *key = json_string(name);
    uint32_t colon;
    char *text;
    size_t n;

    if (key == NULL || jsongram_write(key, s->j->form, &text, &n) < 0) {
        json_decref(key);
        s->err = -ENOMEM;
        return;
    }
    colon = gram_node(g);
    gram_bytes(g, gram_text(g, from, text, n), ':', ':', colon);
    jsongram_ws(s->j, colon, to);
    free(text);
    json_decref(key);
}

static uint32_t extra_pair(struct schema *s, const struct all *a,
                           const struct properties *ps)
{
    struct gram *g = s->j->g;
    uint32_t rule = gram_rule(g), end = gram_node(g), colon = gram_node(g);
    uint32_t value = gram_node(g), ready = gram_node(g);
    struct all *parts = malloc(sizeof(*parts));

    if (parts == NULL) {
        s->err = -ENOMEM;
        return rule;
    }
    gram_final(g, end);
    (void)parts_of(a, NULL, parts);
    if (g->err == 0) {
        put_other_key(s, ps, g->rule[rule].start, colon);
        gram_bytes(g, colon, ':', ':', value);
        jsongram_ws(s->j, value, ready);
        gram_call(g, ready, value_rule(s, parts, "*"), end);
    }
    free(parts);
    return rule;
}

static void comma(struct schema *s, uint32_t from, uint32_t to)
{
    uint32_t mid = gram_node(s->j->g);

    gram_bytes(s->j->g, from, ',', ',', mid);
    jsongram_ws(s->j, mid, to);
}

static void put_extra(struct schema *s, const struct all *a,
                      const struct properties *ps, uint32_t none, uint32_t some,
                      uint32_t close)
{
    struct gram *g = s->j->g;
    uint32_t pair = extra_pair(s, a, ps), more = gram_rule(g);
    uint32_t end = gram_node(g), key = gram_node(g);

    gram_final(g, end);
    if (g->err == 0) {
        comma(s, g->rule[more].start, key);
        gram_call(g, key, pair, end);
    }
    gram_repeat(g, some, more, 0, GRAM_NO_MAX, close);
    jsongram_list(s->j, none, pair, 1, GRAM_NO_MAX, close);
}

/* The places of the properties, from none (nothing written) and some. */
static bool put_properties(struct schema *s, const struct all *a,
                           const struct properties *ps, uint32_t *none,
                           uint32_t *some)
{
    struct gram *g = s->j->g;
    struct all *parts = malloc(sizeof(*parts));
    bool can = parts != NULL;

    for (size_t i = 0; i < ps->n && can && s->err == 0 && g->err == 0; i++) {
        const struct property *p = &ps->p[i];
        uint32_t next_none, next_some, key, value;

        if (!parts_of(a, p->name, parts)) {
            can = !p->required; /* forbidden here, needed there */
            continue;
        }
        next_none = gram_node(g);
        next_some = gram_node(g);
        key = gram_node(g);
        value = gram_node(g);
        gram_eps(g, *none, key);
        comma(s, *some, key);
        put_key(s, p->name, key, value);
        gram_call(g, value, value_rule(s, parts, p->name), next_some);
        if (!p->required) {
            gram_eps(g, *none, next_none);
            gram_eps(g, *some, next_some);
        }
        *none = next_none;
        *some = next_some;
    }
    if (parts == NULL) {
        s->err = -ENOMEM;
    }
    free(parts);
    return can;
}

void schema_object(struct schema *s, const struct all *a, uint32_t from,
                   uint32_t to)
{
    struct gram *g = s->j->g;
    struct properties ps = {0};
    uint32_t open = gram_node(g), none = gram_node(g), some = gram_node(g);
    uint32_t last = gram_node(g), close = gram_node(g);

    for (int i = 0; i < a->n; i++) {
        read_part(s, a->part[i].schema, &ps);
    }
    if (ps.n == 0 && !ps.no_extra && !ps.extra) {
        jsongram_object(s->j, from, to);
        return;
    }
    gram_bytes(g, from, '{', '{', open);
    jsongram_ws(s->j, open, none);
    if (s->err == 0 && put_properties(s, a, &ps, &none, &some)) {
        /* `some` of the first place is never reached. */
        if (!ps.no_extra && (ps.extra || !ps.any_named)) {
            put_extra(s, a, &ps, none, some, last);
        }
        gram_eps(g, none, last);
        gram_eps(g, some, last);
        jsongram_ws(s->j, last, close);
        gram_bytes(g, close, '}', '}', to);
    }
    free(ps.p);
}

/* ---- arrays -------------------------------------------------------------- */

/* What the item at an index must fit; index PAST: all behind the prefixes.
 * false: there must be none. */
#define PAST SIZE_MAX

static bool item_parts(struct schema *s, const struct all *a, size_t index,
                       struct all *ret)
{
    ret->n = 0;
    for (int i = 0; i < a->n; i++) {
        const json_t *v = a->part[i].schema;
        const json_t *first = json_object_get(v, "prefixItems");
        const json_t *x = json_object_get(v, "items");

        if (json_is_array(x)) {
            (void)schema_refuse(s, "items as a list is not supported: use "
                                   "prefixItems");
            return false;
        }
        if (index != PAST && index < json_array_size(first)) {
            x = json_array_get(first, index);
        }
        if (json_is_false(x)) {
            return false;
        }
        if (x != NULL) {
            ret->part[ret->n++] = (struct part){.schema = x};
        }
    }
    return true;
}

static uint32_t item_rule(struct schema *s, const struct all *parts,
                          size_t index)
{
    char name[24] = "items";

    if (index != PAST) {
        (void)snprintf(name, sizeof(name), "%zu", index);
    }
    return value_rule(s, parts, name);
}

struct items {
    size_t n_first; /* prefixes */
    uint32_t min, max;
    struct all *parts; /* scratch */
    bool more;         /* items behind the prefixes */
    uint32_t rule;     /* theirs */
};

static void put_items(struct schema *s, const struct all *a,
                      const struct items *it, uint32_t open, uint32_t close)
{
    struct gram *g = s->j->g;
    uint32_t at = gram_node(g), n = 0;

    if (it->min == 0) {
        gram_eps(g, open, close);
    }
    jsongram_ws(s->j, open, at);
    for (; n < it->n_first && n < it->max && s->err == 0 && g->err == 0; n++) {
        uint32_t ready = at, next = gram_node(g);

        if (!item_parts(s, a, n, it->parts)) {
            return;
        }
        if (n > 0) {
            ready = gram_node(g);
            comma(s, at, ready);
        }
        gram_call(g, ready, item_rule(s, it->parts, n), next);
        if (n + 1 >= it->min) {
            gram_eps(g, next, close);
        }
        at = next;
    }
    if (!it->more || it->max <= n) {
        return;
    }
    if (n == 0) {
        jsongram_list(s->j, at, it->rule, it->min > 0 ? it->min : 1, it->max,
                      close);
    } else {
        uint32_t more = gram_rule(g), end = gram_node(g), ready = gram_node(g);

        gram_final(g, end);
        if (g->err == 0) {
            comma(s, g->rule[more].start, ready);
            gram_call(g, ready, it->rule, end);
        }
        gram_repeat(g, at, more, it->min > n ? it->min - n : 0,
                    it->max == GRAM_NO_MAX ? GRAM_NO_MAX : it->max - n, close);
    }
}

void schema_array(struct schema *s, const struct all *a, const struct shape *x,
                  uint32_t from, uint32_t to)
{
    struct gram *g = s->j->g;
    struct items it = {.min = x->min_items, .max = x->max_items};
    uint32_t open = gram_node(g), last = gram_node(g), close = gram_node(g);
    bool any_items = false;

    for (int i = 0; i < a->n; i++) {
        const json_t *v = a->part[i].schema;
        const json_t *first = json_object_get(v, "prefixItems");

        if (first != NULL && !json_is_array(first)) {
            (void)schema_refuse(s, "prefixItems must be a list");
        }
        if (json_array_size(first) > it.n_first) {
            it.n_first = json_array_size(first);
        }
        any_items |= json_object_get(v, "items") != NULL;
    }
    it.parts = malloc(sizeof(*it.parts));
    if (it.parts == NULL) {
        s->err = -ENOMEM;
    }
    if (it.min > it.max || s->err != 0) {
        free(it.parts);
        return;
    }
    it.more = item_parts(s, a, PAST, it.parts) &&
              (any_items || it.n_first == 0 || it.min > it.n_first);
    if (it.more) {
        it.rule = item_rule(s, it.parts, PAST);
    }
    gram_bytes(g, from, '[', '[', open);
    put_items(s, a, &it, open, last);
    jsongram_ws(s->j, last, close);
    gram_bytes(g, close, ']', ']', to);
    free(it.parts);
}
