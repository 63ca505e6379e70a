/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The one chat template: model-spec 6.3 part by part, in its order (A the
 * leading system turn, B the last query, C each message, D the generation
 * prompt), R being the text of a message's content.
 *
 * What a message or a tool says is added as from_user, the template's own words
 * are not: only in the latter are control tokens recognised, so no text can end
 * a turn or open a thought. What a message lacks or has of the wrong type is
 * refused by its path; parts and roles the template does not know are passed
 * over, as there. Pure, any thread.
 */
#include "daemon/text/chat.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/text/content.h"
#include "daemon/text/pyjson.h"
#include "daemon/text/tokenizer.h"
#include "daemon/text/why.h"

static const char TOOLS_HEAD[] =
    "# Tools\n\n"
    "You have access to the following functions in JSONSchema format:\n\n"
    "<tools>";
static const char TOOLS_TAIL[] =
    "\n</tools>\n\n"
    "If you choose to call a function ONLY reply in the following format with "
    "NO suffix:\n\n"
    "<tool_call>\n"
    "<function=example_function_name>\n"
    "<parameter=example_parameter_1>\n"
    "value_1\n"
    "</parameter>\n"
    "<parameter=example_parameter_2>\n"
    "This is the value for the second parameter\n"
    "that can span\n"
    "multiple lines\n"
    "</parameter>\n"
    "</function>\n"
    "</tool_call>\n\n"
    "<IMPORTANT>\n"
    "Reminder:\n"
    "- Function calls MUST follow the specified format: an inner "
    "<function=...>\n"
    "...\n"
    "</function> block must be nested within <tool_call>\n"
    "...\n"
    "</tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "</IMPORTANT>";

struct chat {
    const struct chat_args *a;
    struct why why;
    json_t *messages, *tools; /* tools NULL: none */
    size_t n;                 /* messages */
    size_t last_query;
    struct prose out;
    struct prose content; /* R of the message at hand */
};

/* ---- reading ---------------------------------------------------------- */

/* A list from JSON text. */
static int parse_list(struct chat *c, const char *what, const char *text,
                      size_t n, json_t **ret)
{
    int r = pyjson_parse(what, text, n, JSON_REJECT_DUPLICATES, ret, &c->why);

    if (r < 0) {
        return r;
    }
    if (!json_is_array(*ret)) {
        return why_set(&c->why, -EINVAL, "%s: expected a list", what);
    }
    return 0;
}

static const json_t *message(const struct chat *c, size_t i)
{
    return json_array_get(c->messages, i);
}

/* The role of message i, which read_args() has seen to be there. */
static bool has_role(const struct chat *c, size_t i, const char *role)
{
    const json_t *r = json_object_get(message(c, i), "role");

    return strcmp(json_string_value(r), role) == 0;
}

static bool is_absent(const json_t *v)
{
    return v == NULL || json_is_null(v);
}

static int read_args(struct chat *c)
{
    const struct chat_args *a = c->a;
    int r = parse_list(c, "messages", a->messages, a->n_messages, &c->messages);

    if (r < 0) {
        return r;
    }
    c->n = json_array_size(c->messages);
    if (c->n == 0) {
        return why_set(&c->why, -EINVAL, "messages: expected at least one");
    }
    for (size_t i = 0; i < c->n; i++) {
        const json_t *role = json_object_get(message(c, i), "role");

        if (!json_is_object(message(c, i))) {
            return why_set(&c->why, -EINVAL,
                           "messages[%zu]: expected an object", i);
        }
        if (!json_is_string(role)) {
            return why_set(&c->why, -EINVAL, "messages[%zu].role: %s", i,
                           role == NULL ? "missing" : "expected a string");
        }
    }
    if (a->tools != NULL) {
        r = parse_list(c, "tools", a->tools, a->n_tools, &c->tools);
    }
    for (size_t i = 0; r == 0 && i < json_array_size(c->tools); i++) {
        if (!json_is_object(json_array_get(c->tools, i))) {
            r = why_set(&c->why, -EINVAL, "tools[%zu]: expected an object", i);
        }
    }
    if (r == 0 && a->reasoning != NULL && *a->reasoning != '\0' &&
        strcmp(a->reasoning, "low") != 0 &&
        strcmp(a->reasoning, "medium") != 0 &&
        strcmp(a->reasoning, "high") != 0) {
        r = why_set(&c->why, -EINVAL,
                    "reasoning_effort: expected low, medium or high");
    }
    return r;
}

/* Fills c->content with R of message i. */
static int render_content(struct chat *c, size_t i)
{
    char path[64];
    int r;

    prose_finish(&c->content);
    snprintf(path, sizeof(path), "messages[%zu].content", i);
    r = content_render(json_object_get(message(c, i), "content"), path,
                       &c->content, &c->why);
    return r < 0 ? r : c->content.text.err;
}

/* R of message i, straight to the output. */
static int add_content(struct chat *c, size_t i)
{
    int r = render_content(c, i);

    if (r == 0) {
        prose_add_slice(&c->out, &c->content, 0, c->content.text.n);
    }
    return r;
}

/* ---- A: the leading system turn --------------------------------------- */

static int add_tools(struct chat *c)
{
    char path[32];
    int r;

    prose_puts(&c->out, TOOLS_HEAD);
    for (size_t i = 0; i < json_array_size(c->tools); i++) {
        snprintf(path, sizeof(path), "tools[%zu]", i);
        prose_puts(&c->out, "\n");
        r = content_value(json_array_get(c->tools, i), path, pyjson_dump,
                          &c->out, &c->why);
        if (r < 0) {
            return r;
        }
    }
    prose_puts(&c->out, TOOLS_TAIL);
    return 0;
}

static int add_leading_turn(struct chat *c)
{
    bool tools = json_array_size(c->tools) != 0;
    bool system = has_role(c, 0, "system");
    bool effort = c->a->reasoning != NULL && *c->a->reasoning != '\0';
    int r = 0;

    if (!tools && !system && !effort) {
        return 0;
    }
    prose_puts(&c->out, "<|im_start|>system\n");
    if (effort) {
        prose_puts(&c->out, "Reasoning: ");
        prose_puts(&c->out, c->a->reasoning);
        prose_puts(&c->out, "\n\n");
    }
    if (system) {
        r = add_content(c, 0);
        if (r == 0 && tools) {
            prose_puts(&c->out, "\n\n");
        }
    }
    if (r == 0 && tools) {
        r = add_tools(c);
    }
    prose_puts(&c->out, "<|im_end|>\n");
    return r;
}

/* ---- B: the last query ------------------------------------------------ */

static bool starts_with(const struct str *s, const char *what)
{
    size_t n = strlen(what);

    return s->n >= n && memcmp(s->p, what, n) == 0;
}

static bool ends_with(const struct str *s, const char *what)
{
    size_t n = strlen(what);

    return s->n >= n && memcmp(s->p + s->n - n, what, n) == 0;
}

/* A user's message that is a wrapped tool response is no query. */
static int find_last_query(struct chat *c)
{
    c->last_query = c->n - 1;
    for (size_t i = c->n; i-- > 0;) {
        int r;

        if (!has_role(c, i, "user")) {
            continue;
        }
        r = render_content(c, i);
        if (r < 0) {
            return r;
        }
        if (!starts_with(&c->content.text, "<tool_response>") ||
            !ends_with(&c->content.text, "</tool_response>")) {
            c->last_query = i;
            return 0;
        }
    }
    return 0;
}

/* ---- C: messages ------------------------------------------------------ */

static int add_assistant(struct chat *c, size_t i)
{
    const json_t *reasoning =
        json_object_get(message(c, i), "reasoning_content");
    struct content_parts p = {0};
    char path[64];
    int r = render_content(c, i);

    if (r < 0) {
        return r;
    }
    if (!is_absent(reasoning) && !json_is_string(reasoning)) {
        return why_set(&c->why, -EINVAL,
                       "messages[%zu].reasoning_content: expected a string", i);
    }
    if (is_absent(reasoning)) {
        p = content_split(&c->content.text);
    }
    prose_puts(&c->out, "<|im_start|>assistant\n");
    if (i > c->last_query && c->a->thinking) {
        prose_puts(&c->out, "<think>\n");
        if (is_absent(reasoning)) {
            prose_add_slice(&c->out, &c->content, p.reason, p.reason_end);
        } else {
            prose_add(&c->out, json_string_value(reasoning),
                      json_string_length(reasoning), true);
        }
        prose_puts(&c->out, "\n</think>\n");
    }
    prose_add_slice(&c->out, &c->content, p.answer, c->content.text.n);
    snprintf(path, sizeof(path), "messages[%zu].tool_calls", i);
    r = content_calls(json_object_get(message(c, i), "tool_calls"), path,
                      &c->out, &c->why);
    prose_puts(&c->out, "<|im_end|>\n");
    return r;
}

/* Neighbouring tool messages share a turn. */
static int add_tool(struct chat *c, size_t i)
{
    int r;

    if (i == 0 || !has_role(c, i - 1, "tool")) {
        prose_puts(&c->out, "<|im_start|>tool_response\n");
    }
    prose_puts(&c->out, "<tool_response>");
    r = add_content(c, i);
    prose_puts(&c->out, "</tool_response>");
    if (i + 1 == c->n || !has_role(c, i + 1, "tool")) {
        prose_puts(&c->out, "<|im_end|>\n");
    }
    return r;
}

static int add_turn(struct chat *c, size_t i, const char *role)
{
    int r;

    prose_puts(&c->out, "<|im_start|>");
    prose_puts(&c->out, role);
    prose_puts(&c->out, "\n");
    r = add_content(c, i);
    prose_puts(&c->out, "<|im_end|>\n");
    return r;
}

static int add_message(struct chat *c, size_t i)
{
    const char *name =
        json_string_value(json_object_get(message(c, i), "name"));

    if (has_role(c, i, "user")) {
        return add_turn(c, i, "user");
    }
    if (has_role(c, i, "assistant")) {
        return add_assistant(c, i);
    }
    if (has_role(c, i, "tool")) {
        return add_tool(c, i);
    }
    if (has_role(c, i, "system") && i != 0) {
        bool observed = name != NULL && strcmp(name, "observation") == 0;

        return add_turn(c, i, observed ? "observation" : "system");
    }
    return 0;
}

/* ---- the whole -------------------------------------------------------- */

static int render(struct chat *c)
{
    int r = read_args(c);

    if (r == 0) {
        r = add_leading_turn(c);
    }
    if (r == 0) {
        r = find_last_query(c);
    }
    for (size_t i = 0; r == 0 && i < c->n; i++) {
        r = add_message(c, i);
    }
    if (r == 0 && c->a->generate) {
        /* D: the generation prompt. */
        prose_puts(&c->out, "<|im_start|>assistant\n");
        if (c->a->thinking) {
            prose_puts(&c->out, "<think>\n");
        }
    }
    return r;
}

int chat_render(const struct chat_args *a, struct chat_prompt *ret, char *why,
                size_t n_why)
{
    struct chat c = {.a = a, .why = {.p = why, .n = n_why}};
    int r = render(&c);

    if (r == 0) {
        str_putc(&c.out.text, '\0');
        r = c.out.text.err;
    }
    if (r == -ENOMEM) {
        why_set(&c.why, r, "out of memory");
    }
    if (r == 0) {
        ret->text = c.out.text.p;
        ret->n = c.out.text.n - 1;
        ret->piece = c.out.piece;
        ret->n_pieces = c.out.n_pieces;
    } else {
        prose_finish(&c.out);
    }
    prose_finish(&c.content);
    json_decref(c.messages);
    json_decref(c.tools);
    return r;
}

void chat_prompt_finish(struct chat_prompt *p)
{
    free(p->text);
    free(p->piece);
    memset(p, 0, sizeof(*p));
}

int chat_tokenize(const struct tokenizer *t, const struct chat_prompt *p,
                  int max_ids, int32_t **ret_ids, int *ret_n)
{
    struct tokenizer_span *span =
        malloc(((size_t)p->n_pieces + 1) * sizeof(*span));
    int32_t *ids = malloc(sizeof(*ids));
    int n_spans = 0, n = 0, cap = 1;
    int r = -ENOMEM;

    if (span == NULL || ids == NULL) {
        goto out;
    }
    for (int i = 0; i < p->n_pieces; i++) {
        if (!p->piece[i].from_user) {
            span[n_spans++] = (struct tokenizer_span){.off = p->piece[i].off,
                                                      .n = p->piece[i].n};
        }
    }
    if (tokenizer_bos(t) >= 0) {
        ids[n++] = tokenizer_bos(t);
    }
    r = tokenizer_encode_spans(t, p->text, p->n, span, n_spans, max_ids, &ids,
                               &n, &cap);
    if (r == 0) {
        *ret_ids = ids;
        *ret_n = n;
        ids = NULL;
    }
out:
    free(ids);
    free(span);
    return r;
}

int chat_open_turn(const struct tokenizer *t, bool thinking, const int32_t *ids,
                   int n)
{
    static const char think[] = "<think>\n";
    int32_t *tail = NULL;
    int n_tail = 0, cap = 0, ret = n;

    if (!thinking) {
        return n;
    }
    if (tokenizer_encode(t, think, strlen(think), true, n, &tail, &n_tail,
                         &cap) < 0 ||
        n_tail > n ||
        memcmp(tail, ids + n - n_tail, (size_t)n_tail * sizeof(*ids)) != 0) {
        ret = 0;
    } else {
        ret = n - n_tail;
    }
    free(tail);
    return ret;
}
