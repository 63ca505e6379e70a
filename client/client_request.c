/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Requests of libstepclient: keys with values that are encoded when they are
 * set, so that submitting is a copy. What a key may hold is the daemon's to
 * say; here only what no key can hold is refused.
 *
 * A request belongs to its caller and is not changed by being submitted. The
 * invariant: where no setter has failed, each key's buffer holds whole values,
 * and one that has failed keeps the request from being submitted.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_priv.h"

int step_request_create(struct step_request **ret, const char *op)
{
    struct step_request *r = calloc(1, sizeof(*r));

    if (r == NULL) {
        return STEP_E_NO_MEMORY;
    }
    r->op = strdup(op);
    if (r->op == NULL) {
        free(r);
        return STEP_E_NO_MEMORY;
    }
    *ret = r;
    return 0;
}

static void key_finish(struct step_key *k)
{
    free(k->name);
    wire_buf_finish(&k->value);
}

void step_request_destroy(struct step_request *r)
{
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; i < r->n_keys; i++) {
        key_finish(&r->key[i]);
    }
    free(r->key);
    free(r->op);
    free(r);
}

/* Keeps the first failure. r: 0, or what a wire_value_ function returned. */
static int outcome(struct step_request *r, const char *key, int err,
                   const char *why)
{
    int code = err == 0         ? 0
               : err == -ENOMEM ? STEP_E_NO_MEMORY
               : err == -E2BIG  ? STEP_E_TOO_LONG
                                : STEP_E_INVALID;

    if (code != 0 && r->err == 0) {
        r->err = code;
        snprintf(r->why, sizeof(r->why), "%.64s: %s", key, why);
    }
    return code;
}

static struct step_key *find(struct step_request *r, const char *key)
{
    for (size_t i = 0; i < r->n_keys; i++) {
        if (strcmp(r->key[i].name, key) == 0) {
            return &r->key[i];
        }
    }
    return NULL;
}

static struct step_key *append_key(struct step_request *r, const char *key)
{
    struct step_key *grown = realloc(r->key, (r->n_keys + 1) * sizeof(*r->key));
    char *name = strdup(key);

    if (grown != NULL) {
        r->key = grown;
    }
    if (grown == NULL || name == NULL) {
        free(name);
        return NULL;
    }
    struct step_key *k = &r->key[r->n_keys++];
    *k = (struct step_key){.name = name};
    wire_buf_init(&k->value, WIRE_MAX_FRAME);
    return k;
}

/* Where to put the value of a key: emptied for a setter, to be appended to for
 * a list. NULL: no memory. */
static struct step_key *open_key(struct step_request *r, const char *key,
                                 bool list)
{
    struct step_key *k = find(r, key);

    if (k == NULL) {
        k = append_key(r, key);
    } else if (!list || !k->list) {
        wire_buf_finish(&k->value);
        k->n_items = 0;
    }
    if (k != NULL) {
        k->list = list;
    }
    return k;
}

/* Counts the value. After a failure the request is good for nothing but its
 * error, so what the key holds then does not matter. */
static int close_key(struct step_request *r, struct step_key *k, int err,
                     const char *why)
{
    k->n_items += err == 0;
    return outcome(r, k->name, err, why);
}

static int no_memory(struct step_request *r, const char *key)
{
    return outcome(r, key, -ENOMEM, "out of memory");
}

static const char *text_why(int err)
{
    return err == -EINVAL ? "the text is not UTF-8" : "too long";
}

int step_request_set_str(struct step_request *r, const char *key,
                         const char *text, size_t n)
{
    struct step_key *k = open_key(r, key, false);

    if (k == NULL) {
        return no_memory(r, key);
    }
    int err = wire_value_str(&k->value, text, n);
    return close_key(r, k, err, text_why(err));
}

int step_request_set_bytes(struct step_request *r, const char *key,
                           const void *bytes, size_t n)
{
    struct step_key *k = open_key(r, key, false);

    if (k == NULL) {
        return no_memory(r, key);
    }
    return close_key(r, k, wire_value_bin(&k->value, bytes, n), "too long");
}

int step_request_set_int(struct step_request *r, const char *key, int64_t v)
{
    struct step_key *k = open_key(r, key, false);

    if (k == NULL) {
        return no_memory(r, key);
    }
    return close_key(r, k, wire_value_int(&k->value, v), "out of memory");
}

int step_request_set_uint(struct step_request *r, const char *key, uint64_t v)
{
    struct step_key *k = open_key(r, key, false);

    if (k == NULL) {
        return no_memory(r, key);
    }
    return close_key(r, k, wire_value_uint(&k->value, v), "out of memory");
}

int step_request_set_real(struct step_request *r, const char *key, double v)
{
    struct step_key *k = open_key(r, key, false);

    if (k == NULL) {
        return no_memory(r, key);
    }
    return close_key(r, k, wire_value_real(&k->value, v),
                     "the number is not finite");
}

int step_request_set_bool(struct step_request *r, const char *key, bool v)
{
    struct step_key *k = open_key(r, key, false);

    if (k == NULL) {
        return no_memory(r, key);
    }
    return close_key(r, k, wire_value_bool(&k->value, v), "out of memory");
}

int step_request_set_json(struct step_request *r, const char *key,
                          const char *json, size_t n)
{
    struct step_key *k = open_key(r, key, false);
    char why[128] = "too long";

    if (k == NULL) {
        return no_memory(r, key);
    }
    int err = wire_value_json(&k->value, json, n, why, sizeof(why));
    return close_key(r, k, err, why);
}

int step_request_set_ids(struct step_request *r, const char *key,
                         const int32_t *ids, size_t n)
{
    struct step_key *k = open_key(r, key, false);

    if (k == NULL) {
        return no_memory(r, key);
    }
    int err =
        n <= WIRE_MAX_VALUES ? wire_value_list(&k->value, (uint32_t)n) : -E2BIG;
    for (size_t i = 0; i < n && err == 0; i++) {
        err = wire_value_int(&k->value, ids[i]);
    }
    return close_key(r, k, err, "too many ids");
}

int step_request_add_str(struct step_request *r, const char *key,
                         const char *text, size_t n)
{
    struct step_key *k = open_key(r, key, true);

    if (k == NULL) {
        return no_memory(r, key);
    }
    int err = wire_value_str(&k->value, text, n);
    return close_key(r, k, err, text_why(err));
}

int step_request_add_json(struct step_request *r, const char *key,
                          const char *json, size_t n)
{
    struct step_key *k = open_key(r, key, true);
    char why[128] = "too long";

    if (k == NULL) {
        return no_memory(r, key);
    }
    int err = wire_value_json(&k->value, json, n, why, sizeof(why));
    return close_key(r, k, err, why);
}

/* One entry of a map of strings. */
static int put_entry(struct wire_buf *b, const char *key, const char *text,
                     size_t n)
{
    int err = wire_value_str(b, key, strlen(key));

    return err != 0 ? err : wire_value_str(b, text, n);
}

int step_request_add_message(struct step_request *r, const char *role,
                             const char *text, size_t n)
{
    struct step_key *k = open_key(r, "messages", true);

    if (k == NULL) {
        return no_memory(r, "messages");
    }
    int err = wire_value_map(&k->value, 2);
    if (err == 0) {
        err = put_entry(&k->value, "role", role, strlen(role));
    }
    if (err == 0) {
        err = put_entry(&k->value, "content", text, n);
    }
    return close_key(r, k, err, text_why(err));
}

/* {type: "function", function: {name, description, parameters}} */
static int put_tool(struct wire_buf *b, const char *name,
                    const char *description, const char *parameters, char *why,
                    size_t n_why)
{
    uint32_t n = 1 + (description != NULL) + (parameters != NULL);
    int err = wire_value_map(b, 2);

    if (err == 0) {
        err = put_entry(b, "type", STEP_STR("function"));
    }
    if (err == 0) {
        err = wire_value_str(b, STEP_STR("function"));
    }
    if (err == 0) {
        err = wire_value_map(b, n);
    }
    if (err == 0) {
        err = put_entry(b, "name", name, strlen(name));
    }
    if (err == 0 && description != NULL) {
        err = put_entry(b, "description", description, strlen(description));
    }
    if (err == -EINVAL) {
        snprintf(why, n_why, "%s", text_why(err));
    }
    if (err == 0 && parameters != NULL) {
        err = wire_value_str(b, STEP_STR("parameters"));
        if (err == 0) {
            err =
                wire_value_json(b, parameters, strlen(parameters), why, n_why);
        }
    }
    return err;
}

int step_request_add_tool(struct step_request *r, const char *name,
                          const char *description, const char *parameters)
{
    struct step_key *k = open_key(r, "tools", true);
    char why[128] = "too long";

    if (k == NULL) {
        return no_memory(r, "tools");
    }
    int err =
        put_tool(&k->value, name, description, parameters, why, sizeof(why));
    return close_key(r, k, err, why);
}

void step_request_unset(struct step_request *r, const char *key)
{
    struct step_key *k = find(r, key);

    if (k != NULL) {
        key_finish(k);
        r->n_keys--;
        *k = r->key[r->n_keys];
    }
}

int step_request_error(const struct step_request *r, const char **ret_why)
{
    if (ret_why != NULL) {
        *ret_why = r->why;
    }
    return r->err;
}

int client_encode(const struct step_request *r, uint64_t id, struct wire_buf *b)
{
    struct wire_map m;

    wire_map_begin_request(&m, b, id, r->op);
    for (size_t i = 0; i < r->n_keys; i++) {
        const struct step_key *k = &r->key[i];
        if (k->list) {
            struct wire_map list;
            wire_map_open_list(&m, k->name, &list);
            wire_list_raw(&list, k->value.p, k->value.n, k->n_items);
            wire_map_close(&list);
        } else {
            wire_map_raw(&m, k->name, k->value.p, k->value.n);
        }
    }
    return wire_map_end(&m);
}
