/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The answer to `describe`: the tables of wire_table.c as one event (wire.h
 * section 7). Manual pages are tested against it and completions generated from
 * it, so that a row is all that a new key takes. Pure, like the rest.
 */

#include <stdlib.h>
#include <string.h>

#include "client/wire_priv.h"

/* A list of the names of bits: keys of an op, ops of a key. */
static void put_keys_of(struct wire_map *m, const char *name, int op,
                        bool needed)
{
    struct wire_map list;

    wire_map_open_list(m, name, &list);
    for (int i = 0; i < WIRE_N_KEYS; i++) {
        const struct wire_key_row *row = &wire_keys[i];
        if ((row->ops >> op & 1) != 0 &&
            ((row->needs >> op & 1) != 0) == needed) {
            wire_list_str(&list, row->name);
        }
    }
    wire_map_close(&list);
}

static void put_ops_of(struct wire_map *m, uint32_t ops)
{
    struct wire_map list;

    wire_map_open_list(m, "ops", &list);
    for (int i = 0; i < WIRE_N_OPS; i++) {
        if ((ops >> i & 1) != 0) {
            wire_list_str(&list, wire_ops[i].name);
        }
    }
    wire_map_close(&list);
}

/* A list of the words of "a b c". */
static void put_words(struct wire_map *m, const char *name, const char *words)
{
    struct wire_map list;
    char word[64];

    wire_map_open_list(m, name, &list);
    while (*words != '\0') {
        size_t n = strcspn(words, " ");
        snprintf(word, sizeof(word), "%.*s", (int)n, words);
        wire_list_str(&list, word);
        words += n + (words[n] == ' ');
    }
    wire_map_close(&list);
}

static void put_numbers(struct wire_map *m, const struct wire_key_row *row)
{
    bool has_default = (row->flags & WIRE_KEY_DEFAULT) != 0;

    switch (row->type) {
    case WIRE_T_INT:
    case WIRE_T_UINT:
    case WIRE_T_INT_LIST:
        wire_map_int(m, "min", row->imin);
        wire_map_uint(m, "max", row->imax);
        if (has_default) {
            wire_map_int(m, "default", row->def_int);
        }
        break;
    case WIRE_T_REAL:
    case WIRE_T_BIAS:
        wire_map_real(m, "min", row->rmin);
        wire_map_real(m, "max", row->rmax);
        if ((row->flags & WIRE_KEY_ABOVE) != 0) {
            wire_map_bool(m, "above", true);
        }
        if (has_default) {
            wire_map_real(m, "default", row->def_real);
        }
        break;
    case WIRE_T_BOOL:
        if (has_default) {
            wire_map_bool(m, "default", row->def_int != 0);
        }
        break;
    default:
        break;
    }
}

static void put_key(struct wire_map *list, const struct wire_key_row *row)
{
    struct wire_map m;

    wire_list_open(list, &m);
    wire_map_str(&m, "name", row->name);
    wire_map_bool(&m, "supported", (row->flags & WIRE_KEY_LATER) == 0);
    wire_map_str(&m, "type", wire_type_name[row->type]);
    put_numbers(&m, row);
    if (row->values != NULL) {
        put_words(&m, "values", row->values);
    }
    if (row->max_bytes > 0) {
        wire_map_uint(&m, "max_bytes", row->max_bytes);
    }
    if (row->max_items > 0) {
        wire_map_uint(&m, "max_items", row->max_items);
    }
    put_ops_of(&m, row->ops);
    wire_map_str(&m, "doc", row->doc);
    wire_map_close(&m);
}

static void put_ops_and_keys(struct wire_map *m)
{
    struct wire_map list, item;

    wire_map_open_list(m, "ops", &list);
    for (int i = 0; i < WIRE_N_OPS; i++) {
        wire_list_open(&list, &item);
        wire_map_str(&item, "name", wire_ops[i].name);
        wire_map_bool(&item, "supported", !wire_ops[i].later);
        put_keys_of(&item, "needs", i, true);
        put_keys_of(&item, "takes", i, false);
        wire_map_str(&item, "doc", wire_ops[i].doc);
        wire_map_close(&item);
    }
    wire_map_close(&list);

    wire_map_open_list(m, "keys", &list);
    for (int i = 0; i < WIRE_N_KEYS; i++) {
        put_key(&list, &wire_keys[i]);
    }
    wire_map_close(&list);
}

int wire_put_describe(struct wire_buf *b, uint64_t id)
{
    struct wire_map m, list, item;

    wire_map_begin_done(&m, b, id);
    wire_map_uint(&m, "protocol", WIRE_VERSION_MAX);
    put_ops_and_keys(&m);

    wire_map_open_list(&m, "events", &list);
    for (size_t i = 0; i < wire_n_events; i++) {
        wire_list_open(&list, &item);
        wire_map_str(&item, "name", wire_events[i].name);
        put_words(&item, "keys", wire_events[i].keys);
        wire_map_str(&item, "doc", wire_events[i].doc);
        wire_map_close(&item);
    }
    wire_map_close(&list);

    wire_map_open_list(&m, "codes", &list);
    for (size_t i = 0; i < wire_n_codes; i++) {
        wire_list_open(&list, &item);
        wire_map_str(&item, "name", wire_codes[i].name);
        wire_map_str(&item, "doc", wire_codes[i].doc);
        wire_map_close(&item);
    }
    wire_map_close(&list);

    wire_map_open_list(&m, "limits", &list);
    for (size_t i = 0; i < wire_n_limits; i++) {
        wire_list_open(&list, &item);
        wire_map_str(&item, "name", wire_limits[i].name);
        wire_map_uint(&item, "value", wire_limits[i].value);
        wire_map_str(&item, "doc", wire_limits[i].doc);
        wire_map_close(&item);
    }
    wire_map_close(&list);
    return wire_map_end(&m);
}
