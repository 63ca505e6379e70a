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
    struct chat_exact *exact;
    int n_exact;
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

static bool is_text(const json_t *v, const char *s, size_t n)
{
    return json_is_string(v) && json_string_length(v) == n &&
           memcmp(json_string_value(v), s, n) == 0;
}

static bool is_call(const json_t *v, const struct chat_turn_call *call)
{
    const json_t *f = json_object_get(v, "function");
    const json_t *arguments = json_object_get(f, "arguments");
    json_t *a, *b;
    bool same;

    if (!is_text(json_object_get(v, "id"), call->id, call->n_id) ||
        !is_text(json_object_get(f, "name"), call->name, call->n_name)) {
        return false;
    }
    if (is_text(arguments, call->arguments, call->n_arguments)) {
        return true;
    }
    a = json_is_string(arguments)
            ? json_loadb(json_string_value(arguments),
                         json_string_length(arguments), JSON_ALLOW_NUL, NULL)
            : json_incref((json_t *)arguments);
    b = json_loadb(call->arguments, call->n_arguments, JSON_ALLOW_NUL, NULL);
    same = a != NULL && b != NULL && json_equal(a, b);
    json_decref(a);
    json_decref(b);
    return same;
}

/* What the model wrote where message i, whose content is rendered, says the
 * same; NULL where it is not known. */
static const struct chat_turn *find_turn(struct chat *c, size_t i)
{
    const json_t *calls = json_object_get(message(c, i), "tool_calls");
    const json_t *id = json_object_get(json_array_get(calls, 0), "id");
    const struct chat_turn *t;
    size_t n = c->content.text.n;

    if (c->a->find == NULL || !json_is_string(id)) {
        return NULL;
    }
    t = c->a->find(c->a->ctx, json_string_value(id), json_string_length(id));
    if (t == NULL || (size_t)t->n_calls != json_array_size(calls) ||
        t->n_content != n ||
        (n != 0 && memcmp(t->content, c->content.text.p, n) != 0)) {
        return NULL;
    }
    for (int k = 0; k < t->n_calls; k++) {
        if (!is_call(json_array_get(calls, (size_t)k), &t->call[k])) {
            return NULL;
        }
    }
    return t;
}

/* The text and ids of a turn, from a token on. */
static int add_exact(struct chat *c, const struct chat_turn *t, size_t from,
                     int from_id)
{
    struct chat_exact *x =
        realloc(c->exact, ((size_t)c->n_exact + 1) * sizeof(*x));
    size_t n_ids = (size_t)(t->n_ids - from_id);

    if (x == NULL) {
        return -ENOMEM;
    }
    c->exact = x;
    x += c->n_exact;
    *x = (struct chat_exact){
        .off = c->out.text.n, .n = t->n_text - from, .n_ids = (int)n_ids};
    x->ids = malloc(n_ids * sizeof(*x->ids) + 1);
    if (x->ids == NULL) {
        return -ENOMEM;
    }
    c->n_exact++;
    if (n_ids != 0) {
        memcpy(x->ids, t->ids + from_id, n_ids * sizeof(*x->ids));
    }
    prose_add(&c->out, t->text + from, x->n, true);
    return c->out.text.err;
}

/* Message i as the model wrote it: 1, or 0 where it is to be rendered. Its
 * reasoning comes back only where the message has it: what a client leaves out
 * stays out. */
static int add_turn_of_calls(struct chat *c, size_t i)
{
    const json_t *reasoning =
        json_object_get(message(c, i), "reasoning_content");
    bool shown = i > c->last_query && c->a->thinking;
    const struct chat_turn *t = find_turn(c, i);
    int r = 0;

    if (t == NULL) {
        return 0;
    }
    if (shown == t->thinking &&
        (!shown || is_text(reasoning, t->reasoning, t->n_reasoning))) {
        prose_puts(&c->out, "<|im_start|>assistant\n");
        prose_puts(&c->out, shown ? "<think>\n" : "");
        r = add_exact(c, t, 0, 0);
    } else if (!shown && t->answer_id >= 0) {
        prose_puts(&c->out, "<|im_start|>assistant\n");
        r = add_exact(c, t, t->answer, t->answer_id);
    } else {
        return 0;
    }
    prose_puts(&c->out, "<|im_end|>\n");
    return r < 0 ? r : 1;
}

static int add_assistant(struct chat *c, size_t i)
{
    const json_t *reasoning =
        json_object_get(message(c, i), "reasoning_content");
    struct content_parts p = {0};
    char path[64];
    int r = render_content(c, i);

    if (r == 0) {
        r = add_turn_of_calls(c, i);
        if (c->a->release != NULL) {
            c->a->release(c->a->ctx);
        }
    }
    if (r != 0) {
        return r < 0 ? r : 0;
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

static void finish_exact(struct chat_exact *x, int n)
{
    for (int i = 0; i < n; i++) {
        free(x[i].ids);
    }
    free(x);
}

int chat_render(const struct chat_args *a, struct chat_prompt *ret, char *why,
                size_t n_why)
{
    struct chat c = {.a = a, .why = {.p = why, .n = n_why}};
    unsigned refused = pyjson_refused();
    int r = render(&c);

    if (pyjson_refused() != refused) {
        r = -ENOMEM; /* a call that was not recognised, say */
    }
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
        ret->exact = c.exact;
        ret->n_exact = c.n_exact;
    } else {
        prose_finish(&c.out);
        finish_exact(c.exact, c.n_exact);
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
    finish_exact(p->exact, p->n_exact);
    memset(p, 0, sizeof(*p));
}

struct ids {
    int32_t *p;
    int n, cap;
};

/* The template's pieces of text [from, to), as spans of it. */
static int spans_of(const struct chat_prompt *p, size_t from, size_t to,
                    struct tokenizer_span *ret)
{
    int n = 0;

    for (int i = 0; i < p->n_pieces; i++) {
        size_t a = p->piece[i].off, b = a + p->piece[i].n;

        a = a > from ? a : from;
        b = b < to ? b : to;
        if (!p->piece[i].from_user && a < b) {
            ret[n++] = (struct tokenizer_span){.off = a - from, .n = b - a};
        }
    }
    return n;
}

static int encode(const struct tokenizer *t, const struct chat_prompt *p,
                  size_t from, size_t to, int max_ids,
                  struct tokenizer_span *span, struct ids *ids)
{
    int n = spans_of(p, from, to, span);

    return tokenizer_encode_spans(t, p->text + from, to - from, span, n,
                                  max_ids, &ids->p, &ids->n, &ids->cap);
}

static int append_ids(struct ids *ids, const int32_t *p, int n, int max_ids)
{
    if (n > max_ids - ids->n) {
        return -E2BIG;
    }
    if (ids->n + n > ids->cap) {
        int32_t *grown =
            realloc(ids->p, ((size_t)ids->n + (size_t)n) * sizeof(*grown));

        if (grown == NULL) {
            return -ENOMEM;
        }
        ids->p = grown;
        ids->cap = ids->n + n;
    }
    memcpy(ids->p + ids->n, p, (size_t)n * sizeof(*p));
    ids->n += n;
    return 0;
}

int chat_tokenize(const struct tokenizer *t, const struct chat_prompt *p,
                  int max_ids, int32_t **ret_ids, int *ret_n)
{
    struct tokenizer_span *span =
        malloc(((size_t)p->n_pieces + 1) * sizeof(*span));
    struct ids ids = {.p = malloc(sizeof(*ids.p)), .cap = 1};
    size_t at = 0;
    int r = -ENOMEM;

    if (span == NULL || ids.p == NULL) {
        goto out;
    }
    if (tokenizer_bos(t) >= 0) {
        ids.p[ids.n++] = tokenizer_bos(t);
    }
    r = 0;
    for (int i = 0; r == 0 && i < p->n_exact; i++) {
        const struct chat_exact *x = &p->exact[i];

        r = encode(t, p, at, x->off, max_ids, span, &ids);
        if (r == 0) {
            r = append_ids(&ids, x->ids, x->n_ids, max_ids);
        }
        at = x->off + x->n;
    }
    if (r == 0) {
        r = encode(t, p, at, p->n, max_ids, span, &ids);
    }
    if (r == 0) {
        *ret_ids = ids.p;
        *ret_n = ids.n;
        ids.p = NULL;
    }
out:
    free(ids.p);
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
