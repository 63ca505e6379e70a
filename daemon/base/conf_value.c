/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Values of stepd.conf: one text to one field, and what may stand there.
 *
 * Owns nothing; allocates the texts and lists that the fields hold. Runs before
 * any thread exists. Numbers are decimal and whole words: "12x", "0x10", " ",
 * and what overflows are refused, never half read. Names of users and groups
 * are looked up here, once, so that no connection ever waits for a directory
 * service.
 */

#include "daemon/base/conf_value.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"

#define MAX_IDS 256 /* in one list */
#define MAX_DB_BYTES (1 << 20)

struct suffix {
    char word[4];
    uint64_t factor;
};

static const struct suffix byte_suffixes[] = {
    {"", 1},           {"K", 1ULL << 10}, {"M", 1ULL << 20},
    {"G", 1ULL << 30}, {"T", 1ULL << 40},
};
static const struct suffix time_suffixes[] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000},
};

static void *field(struct conf *c, const struct conf_key *key)
{
    return (char *)c + key->offset;
}

/* Digits only, then one of the suffixes. */
static int parse_unit(const char *text, const struct suffix *s, size_t n_s,
                      uint64_t *ret)
{
    unsigned long long v;
    char *end;

    if (*text < '0' || *text > '9') {
        return -EINVAL;
    }
    errno = 0;
    v = strtoull(text, &end, 10);
    if (errno != 0) {
        return -EINVAL;
    }
    for (size_t i = 0; i < n_s; i++) {
        if (strcmp(end, s[i].word) == 0) {
            if (v > UINT64_MAX / s[i].factor) {
                return -EINVAL;
            }
            *ret = v * s[i].factor;
            return 0;
        }
    }
    return -EINVAL;
}

static int parse_int(const char *text, int base, const struct conf_key *key,
                     int *ret)
{
    char *end;
    long v;

    if ((*text < '0' || *text > '9') && *text != '-') {
        return -EINVAL;
    }
    errno = 0;
    v = strtol(text, &end, base);
    if (errno != 0 || end == text || *end != '\0' || (double)v < key->min ||
        (double)v > key->max) {
        return -EINVAL;
    }
    *ret = (int)v;
    return 0;
}

static int parse_real(const char *text, const struct conf_key *key, double *ret)
{
    double v;
    char *end;

    /* strtod would also take "inf", "nan" and hexadecimal. */
    if (*text == '\0' || text[strspn(text, "0123456789.")] != '\0') {
        return -EINVAL;
    }
    v = strtod(text, &end);
    if (*end != '\0' || !(v >= key->min && v <= key->max)) {
        return -EINVAL;
    }
    *ret = v;
    return 0;
}

static int parse_choice(const char *text, const char *const *choices)
{
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], text) == 0) {
            return i;
        }
    }
    return -EINVAL;
}

/* ---- users and groups --------------------------------------------------- */

/* A number, or a name that the host knows. The *_r functions want a buffer
 * of unknown size: it doubles while they say ERANGE. */
static int look_up(const char *name, bool group, uint32_t *ret)
{
    struct passwd pw, *pw_found = NULL;
    struct group gr, *gr_found = NULL;
    static const struct suffix plain = {"", 1};
    uint64_t number;
    char *buf = NULL;
    int r;

    if (parse_unit(name, &plain, 1, &number) == 0) {
        if (number >= UINT32_MAX) {
            return -ERANGE; /* (uid_t)-1 means "none" to the kernel */
        }
        *ret = (uint32_t)number;
        return 0;
    }
    for (size_t n = 1024; n <= MAX_DB_BYTES; n *= 2) {
        free(buf);
        buf = xmalloc(n);
        r = group ? getgrnam_r(name, &gr, buf, n, &gr_found)
                  : getpwnam_r(name, &pw, buf, n, &pw_found);
        if (r != ERANGE) {
            break;
        }
    }
    r = pw_found == NULL && gr_found == NULL ? -ENOENT : 0;
    if (r == 0) {
        *ret = group ? gr_found->gr_gid : pw_found->pw_uid;
    }
    free(buf);
    return r;
}

static int parse_ids(const char *text, bool group, struct conf_ids *ret,
                     char *why, size_t n_why)
{
    static const char sep[] = ", \t";
    struct conf_ids ids = {0};
    char *copy = xstrdup(text), *rest = copy, *name;
    int r = 0;

    ids.id = xcalloc(MAX_IDS, sizeof(ids.id[0]));
    while (r == 0 && (name = strsep(&rest, sep)) != NULL) {
        if (*name == '\0') {
            continue;
        }
        if (ids.n == MAX_IDS) {
            (void)snprintf(why, n_why, "more than %d entries", MAX_IDS);
            r = -EINVAL;
        } else if (look_up(name, group, &ids.id[ids.n]) < 0) {
            (void)snprintf(why, n_why, "no %s '%.100s' on this host",
                           group ? "group" : "user", name);
            r = -EINVAL;
        } else {
            ids.n++;
        }
    }
    free(copy);
    if (r < 0) {
        free(ids.id);
        return r;
    }
    *ret = ids;
    return 0;
}

/* ---- any value ---------------------------------------------------------- */

static int set_text(char **field_p, const char *text, char *why, size_t n_why)
{
    for (const char *p = text; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            (void)snprintf(why, n_why, "control character");
            return -EINVAL;
        }
    }
    free(*field_p);
    *field_p = xstrdup(text);
    return 0;
}

static int set_unit(uint64_t *field_p, const char *text,
                    const struct conf_key *key)
{
    bool bytes = key->type == CONF_BYTES;
    uint64_t v;
    int r;

    r = parse_unit(text, bytes ? byte_suffixes : time_suffixes, 5, &v);
    if (r < 0 || (double)v < key->min || (double)v > key->max) {
        return -EINVAL;
    }
    *field_p = v;
    return 0;
}

static int set_bool(bool *field_p, const char *text)
{
    bool yes = strcmp(text, "yes") == 0;

    if (!yes && strcmp(text, "no") != 0) {
        return -EINVAL;
    }
    *field_p = yes;
    return 0;
}

static int set_ids(struct conf_ids *field_p, const char *text, bool group,
                   char *why, size_t n_why)
{
    struct conf_ids ids;
    int r = parse_ids(text, group, &ids, why, n_why);

    if (r < 0) {
        return r;
    }
    free(field_p->id);
    *field_p = ids;
    return 0;
}

int conf_value_set(struct conf *c, const struct conf_key *key, const char *text,
                   char *why, size_t n_why)
{
    void *p = field(c, key);
    int i;

    switch (key->type) {
    case CONF_TEXT:
        return set_text(p, text, why, n_why);
    case CONF_WORD:
    case CONF_CHOICE:
        i = parse_choice(text, key->choices);
        if (i < 0) {
            return i;
        }
        if (key->type == CONF_WORD) {
            *(const char **)p = key->choices[i];
        } else {
            *(int *)p = i + key->first;
        }
        return 0;
    case CONF_INT:
        return parse_int(text, 10, key, p);
    case CONF_OCTAL:
        return parse_int(text, 8, key, p);
    case CONF_REAL:
        return parse_real(text, key, p);
    case CONF_BYTES:
    case CONF_TIME:
        return set_unit(p, text, key);
    case CONF_BOOL:
        return set_bool(p, text);
    case CONF_USERS:
    case CONF_GROUPS:
        return set_ids(p, text, key->type == CONF_GROUPS, why, n_why);
    }
    die("bug: type of key %s", key->name);
}

void conf_value_clear(struct conf *c, const struct conf_key *key)
{
    void *p = field(c, key);

    if (key->type == CONF_TEXT) {
        free(*(char **)p);
        *(char **)p = NULL;
    } else if (key->type == CONF_USERS || key->type == CONF_GROUPS) {
        free(((struct conf_ids *)p)->id);
        memset(p, 0, sizeof(struct conf_ids));
    }
}

static size_t size_of(const struct conf_key *key)
{
    switch (key->type) {
    case CONF_TEXT:
    case CONF_WORD:
        return sizeof(char *);
    case CONF_CHOICE:
    case CONF_INT:
    case CONF_OCTAL:
        return sizeof(int);
    case CONF_REAL:
        return sizeof(double);
    case CONF_BYTES:
    case CONF_TIME:
        return sizeof(uint64_t);
    case CONF_BOOL:
        return sizeof(bool);
    case CONF_USERS:
    case CONF_GROUPS:
        return sizeof(struct conf_ids);
    }
    die("bug: type of key %s", key->name);
}

bool conf_value_same(const struct conf *a, const struct conf *b,
                     const struct conf_key *key)
{
    const void *p = (const char *)a + key->offset;
    const void *q = (const char *)b + key->offset;
    const struct conf_ids *i = p, *j = q;

    if (key->type == CONF_TEXT) {
        return strcmp(*(char *const *)p, *(char *const *)q) == 0;
    }
    if (key->type == CONF_USERS || key->type == CONF_GROUPS) {
        return i->n == j->n &&
               (i->n == 0 ||
                memcmp(i->id, j->id, (size_t)i->n * sizeof(i->id[0])) == 0);
    }
    return memcmp(p, q, size_of(key)) == 0;
}

void conf_value_swap(struct conf *a, struct conf *b, const struct conf_key *key)
{
    char tmp[sizeof(struct conf_ids)];
    size_t n = size_of(key);

    memcpy(tmp, field(a, key), n);
    memcpy(field(a, key), field(b, key), n);
    memcpy(field(b, key), tmp, n);
}

/* ---- what may stand there ----------------------------------------------- */

/* "64K", "1G": as a person would write it. */
static void put_bytes(char *buf, size_t n, double bytes)
{
    unsigned long long v = (unsigned long long)bytes;
    int i = 0;

    while (i < 4 && v >= 1024 && v % 1024 == 0) {
        v /= 1024;
        i++;
    }
    (void)snprintf(buf, n, "%llu%.3s", v, byte_suffixes[i].word);
}

static void put_choices(char *buf, size_t n, const char *const *choices)
{
    int at = snprintf(buf, n, "one of");

    for (int i = 0; choices[i] != NULL && at >= 0 && (size_t)at < n; i++) {
        at += snprintf(buf + at, n - (size_t)at, "%s %s", i > 0 ? "," : "",
                       choices[i]);
    }
}

void conf_allowed(const struct conf_key *key, char *buf, size_t n)
{
    const char *unit_sep = key->unit[0] != '\0' ? " " : "";
    char lo[32], hi[32];

    switch (key->type) {
    case CONF_TEXT:
        (void)snprintf(buf, n, "a text");
        break;
    case CONF_WORD:
    case CONF_CHOICE:
        put_choices(buf, n, key->choices);
        break;
    case CONF_INT:
        (void)snprintf(buf, n, "a whole number, %.0f to %.0f%s%s", key->min,
                       key->max, unit_sep, key->unit);
        break;
    case CONF_OCTAL:
        (void)snprintf(buf, n, "an octal mode, 0 to %o", (unsigned)key->max);
        break;
    case CONF_REAL:
        (void)snprintf(buf, n, "a number, %g to %g", key->min, key->max);
        break;
    case CONF_BYTES:
        put_bytes(lo, sizeof(lo), key->min);
        put_bytes(hi, sizeof(hi), key->max);
        (void)snprintf(buf, n, "a size, %s to %s (suffixes K, M, G, T)", lo,
                       hi);
        break;
    case CONF_TIME:
        (void)snprintf(buf, n,
                       "a time, %.0fms to %.0fs (suffixes ms, s, min, h)",
                       key->min, key->max / 1000);
        break;
    case CONF_BOOL:
        (void)snprintf(buf, n, "yes or no");
        break;
    case CONF_USERS:
        (void)snprintf(buf, n, "names or numbers of users");
        break;
    case CONF_GROUPS:
        (void)snprintf(buf, n, "names or numbers of groups");
        break;
    }
}
