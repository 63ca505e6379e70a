/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_SCHEMA_H
#define STEPD_DAEMON_TEXT_SCHEMA_H

/*
 * JSON Schema to grammar. What is generated always fits the schema; not all
 * that fits is generated:
 *
 *   - properties come in the order of the schema, and others than those only
 *     where additionalProperties asks for them;
 *   - keywords of one type without `type` mean that type;
 *   - numbers have at most JSONGRAM_MAX_DIGITS digits.
 *
 * Taken: type, enum, const, properties, required, additionalProperties, items,
 * prefixItems, minItems, maxItems, minLength, maxLength, pattern, format (date,
 * time, date-time, uuid), minimum, maximum, exclusiveMinimum, exclusiveMaximum,
 * anyOf, oneOf (where no two can fit at once), allOf, $ref within the document,
 * $defs, and annotations. Any other keyword is refused by its name: to pass one
 * over would let through what the schema forbids.
 */

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/text/jsongram.h"
#include "daemon/text/why.h"

#define SCHEMA_MAX_PARTS 64    /* schemas that one value must fit at once */
#define SCHEMA_MAX_CHOICES 512 /* of anyOf and oneOf, multiplied out */
#define SCHEMA_MAX_PATH 160    /* bytes of a path in a refusal */

struct schema; /* one document on its way into a grammar */

/* root: what $ref is relative to; must outlive it. -ENOMEM. */
int schema_create(struct schema **ret, const json_t *root, struct jsongram *j,
                  const struct why *why);
void schema_destroy(struct schema *s); /* NULL is fine */
/* The rule of one schema of the document; path names it in refusals. The rule
 * is empty until schema_run. */
uint32_t schema_rule(struct schema *s, const json_t *schema, const char *path);
/* Builds all rules asked for and those that they need. -EINVAL (why), -ENOMEM,
 * -E2BIG (why). */
int schema_run(struct schema *s);

#endif
