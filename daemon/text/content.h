/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_DAEMON_TEXT_CONTENT_H
#define STEPD_DAEMON_TEXT_CONTENT_H

/*
 * What a message says: its content as text, and its tool calls. Parts of the
 * chat template (chat.c).
 */

#include <jansson.h>

#include "daemon/text/prose.h"
#include "daemon/text/why.h"

/* R of model-spec 6.3: appends the text of a message's content (NULL, null,
 * string, mapping, list of parts). path names it in refusals. -EINVAL; an
 * allocation failure is out's. */
int content_render(const json_t *content, const char *path, struct prose *out,
                   const struct why *why);

/* Stretches of an assistant's content: the reasoning it shows, if any, and the
 * answer, which goes to the end. */
struct content_parts {
    size_t reason, reason_end, answer;
};

struct content_parts content_split(const struct str *s);

/* Appends a message's tool_calls (NULL, null, list) in the form that the model
 * writes them. path names them. -EINVAL, -ENOMEM; as above. */
int content_calls(const json_t *calls, const char *path, struct prose *out,
                  const struct why *why);
/* Appends a value as from the user: a tool by pyjson_dump, an argument by
 * pyjson_str. */
int content_value(const json_t *v, const char *path,
                  int (*write)(const json_t *, struct str *), struct prose *out,
                  const struct why *why);

#endif
