/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Build tool: the protocol's tables as text for the manual and for completion,
 * made from what `describe` is made of, so that neither can lag behind.
 *
 *   mantables ops|keys|events|codes|limits   a section of stepd-protocol(7)
 *   mantables values                         KEY WORD... of keys with a choice
 *   mantables names                          every name, one a line: KIND NAME
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/wire_priv.h"

/* scdoc takes these for markup. */
static void put_text(const char *s)
{
    for (; *s != '\0'; s++) {
        if (strchr("*_\\<>[]#", *s) != NULL) {
            putchar('\\');
        }
        putchar(*s);
    }
}

static void put_keys(int op, bool needed)
{
    const char *sep = "";

    for (int i = 0; i < WIRE_N_KEYS; i++) {
        const struct wire_key_row *k = &wire_keys[i];

        if (i == WIRE_K_OP || i == WIRE_K_ID || (k->ops >> op & 1) == 0 ||
            ((k->needs >> op & 1) != 0) != needed) {
            continue;
        }
        printf("%s", sep);
        put_text(k->name);
        sep = ", ";
    }
}

static void put_ops(void)
{
    for (int i = 0; i < WIRE_N_OPS; i++) {
        printf("*");
        put_text(wire_ops[i].name);
        printf("*\n\t");
        put_text(wire_ops[i].doc);
        printf(".%s Needs: ", wire_ops[i].later ? " Not in this version." : "");
        put_keys(i, true);
        printf(". Takes: ");
        put_keys(i, false);
        printf(".\n\n");
    }
}

static void put_range(const struct wire_key_row *k)
{
    bool has_default = (k->flags & WIRE_KEY_DEFAULT) != 0;

    switch (k->type) {
    case WIRE_T_INT:
    case WIRE_T_UINT:
    case WIRE_T_INT_LIST:
        printf(", %" PRId64 " to %" PRIu64, k->imin, k->imax);
        if (has_default) {
            printf(", default %" PRId64, k->def_int);
        }
        break;
    case WIRE_T_REAL:
    case WIRE_T_BIAS:
        printf(", %s%g to %g", (k->flags & WIRE_KEY_ABOVE) != 0 ? "above " : "",
               k->rmin, k->rmax);
        if (has_default) {
            printf(", default %g", k->def_real);
        }
        break;
    case WIRE_T_BOOL:
        if (has_default) {
            printf(", default %s", k->def_int != 0 ? "true" : "false");
        }
        break;
    default:
        break;
    }
    if (k->values != NULL) {
        printf(", one of: ");
        put_text(k->values);
    }
    if (k->max_items > 0) {
        printf(", at most %zu items", k->max_items);
    }
    if (k->max_bytes > 0) {
        printf(", at most %zu bytes", k->max_bytes);
    }
}

static void put_key_list(void)
{
    for (int i = 0; i < WIRE_N_KEYS; i++) {
        const struct wire_key_row *k = &wire_keys[i];

        printf("*");
        put_text(k->name);
        printf("* (%s", wire_type_name[k->type]);
        put_range(k);
        printf(")\n\t");
        put_text(k->doc);
        printf(".%s%s\n\n",
               (k->flags & WIRE_KEY_CHAT) != 0 ? " With messages only." : "",
               (k->flags & WIRE_KEY_LATER) != 0 ? " Not in this version." : "");
    }
}

static void put_events(void)
{
    for (size_t i = 0; i < wire_n_events; i++) {
        printf("*%s* {", wire_events[i].name);
        put_text(wire_events[i].keys);
        printf("}\n\t");
        put_text(wire_events[i].doc);
        printf(".\n\n");
    }
}

static void put_codes(void)
{
    for (size_t i = 0; i < wire_n_codes; i++) {
        printf("*");
        put_text(wire_codes[i].name);
        printf("*\n\t");
        put_text(wire_codes[i].doc);
        printf(".\n\n");
    }
}

static void put_limits(void)
{
    for (size_t i = 0; i < wire_n_limits; i++) {
        printf("*");
        put_text(wire_limits[i].name);
        printf("* = %" PRIu64 "\n\t", wire_limits[i].value);
        put_text(wire_limits[i].doc);
        printf(".\n\n");
    }
}

static void put_values(void)
{
    for (int i = 0; i < WIRE_N_KEYS; i++) {
        if (wire_keys[i].values != NULL) {
            printf("%s %s\n", wire_keys[i].name, wire_keys[i].values);
        }
    }
}

static void put_names(void)
{
    for (int i = 0; i < WIRE_N_OPS; i++) {
        printf("op %s\n", wire_ops[i].name);
    }
    for (int i = 0; i < WIRE_N_KEYS; i++) {
        printf("key %s\n", wire_keys[i].name);
    }
    for (size_t i = 0; i < wire_n_events; i++) {
        printf("event %s\n", wire_events[i].name);
    }
    for (size_t i = 0; i < wire_n_codes; i++) {
        printf("code %s\n", wire_codes[i].name);
    }
    for (size_t i = 0; i < wire_n_limits; i++) {
        printf("limit %s\n", wire_limits[i].name);
    }
}

static const struct {
    const char *name;
    void (*put)(void);
} sections[] = {
    {"ops", put_ops},     {"keys", put_key_list}, {"events", put_events},
    {"codes", put_codes}, {"limits", put_limits}, {"values", put_values},
    {"names", put_names},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(sections) / sizeof(sections[0]);
         i++) {
        if (strcmp(argv[1], sections[i].name) == 0) {
            sections[i].put();
            return fflush(stdout) == 0 ? 0 : 1;
        }
    }
    (void)fprintf(stderr, "mantables: which section?\n");
    return 1;
}
