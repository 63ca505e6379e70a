/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What chat and complete have in common: the options of sampling and output,
 * the files, and how an answer is printed. In text mode the answer's text goes
 * to stdout as it comes, reasoning dimmed (on a terminal) or not at all (in a
 * pipe, unless asked for); statistics go to stderr.
 */

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli.h"

void cli_generate_options(struct cli *cli, struct cli_generate *g,
                          struct cli_option *own, size_t n_own)
{
    const struct cli_option common[CLI_N_GENERATE] = {
        {"max-tokens", CLI_KEY_INT, "N", "max_tokens", NULL,
         "length of the answer at most (default: what fits)"},
        {"temperature", CLI_KEY_REAL, "X", "temperature", NULL,
         "0 is greedy (default: 1)"},
        {"top-p", CLI_KEY_REAL, "X", "top_p", NULL, "(default: 1, off)"},
        {"top-k", CLI_KEY_INT, "N", "top_k", NULL, "(default: 0, off)"},
        {"min-p", CLI_KEY_REAL, "X", "min_p", NULL, "(default: 0, off)"},
        {"seed", CLI_KEY_UINT, "N", "seed", NULL,
         "(default: drawn; --stats tells it)"},
        {"stop", CLI_KEY_LIST, "TEXT", "stop", NULL,
         "end the answer before this text; repeatable"},
        {"repetition-penalty", CLI_KEY_REAL, "X", "repetition_penalty", NULL,
         "(default: 1, off)"},
        {"presence-penalty", CLI_KEY_REAL, "X", "presence_penalty", NULL,
         "(default: 0, off)"},
        {"frequency-penalty", CLI_KEY_REAL, "X", "frequency_penalty", NULL,
         "(default: 0, off)"},
        {"logprobs", CLI_KEY_INT, "N", "logprobs", NULL,
         "with so many alternatives; see them with --json"},
        {"logprobs-mode", CLI_KEY_STR, "MODE", "logprobs_mode", NULL,
         "raw, or sampled: as drawn from (default: raw)"},
        {"logit-bias", CLI_LIST, "ID=X", NULL, &g->biases,
         "add X, -100..100, to this token's logit; repeatable"},
        {"json-schema", CLI_TEXT, "FILE", NULL, &g->schema,
         "the answer fits this schema"},
        {"drafts", CLI_KEY_INT, "N", "drafts", NULL,
         "drafts a step, 0..3 (default: the engine's choice)"},
        {"priority", CLI_KEY_INT, "N", "priority", NULL,
         "-10..10, higher first (default: 0)"},
        {"timeout", CLI_KEY_MS, "SECONDS", "timeout_ms", NULL,
         "end the request then, waiting included"},
        {"file", CLI_LIST, "FILE", NULL, &g->files,
         "append a file to the prompt; repeatable"},
        {"no-stream", CLI_FLAG, NULL, NULL, &g->no_stream,
         "print nothing before the end"},
        {"json", CLI_FLAG, NULL, NULL, &cli->json,
         "print the events as they come, one JSON object a line"},
        {"ids", CLI_FLAG, NULL, NULL, &g->ids,
         "print token ids instead of text"},
        {"strict", CLI_FLAG, NULL, NULL, &cli->strict,
         "exit with 65 when the answer was cut at --max-tokens"},
        {"stats", CLI_FLAG, NULL, NULL, &g->stats,
         "tokens a second and acceptance, on stderr"},
    };

    for (size_t i = 0; common[i].name != NULL; i++) {
        own[n_own++] = common[i];
    }
    own[n_own] = (struct cli_option){0};
}

static int set_schema(struct cli_generate *g)
{
    struct cli_text file = {0}, json = {0};
    int code = cli_read_json(&file, g->schema);

    if (code == 0) {
        cli_append(&json, STEP_STR("{\"type\": \"json_schema\", \"schema\": "));
        cli_append(&json, file.p, file.n);
        cli_append(&json, STEP_STR("}"));
        step_request_set_json(g->r, "response_format", json.p, json.n);
    }
    free(file.p);
    free(json.p);
    return code;
}

static int set_choices(struct cli_generate *g)
{
    json_t *list = json_array();
    json_t *format = json_pack("{s:s, s:o}", "type", "choice", "choice", list);
    char *text = NULL;
    int code = 0;

    for (size_t i = 0; i < g->choices.n && code == 0; i++) {
        if (json_array_append_new(list, json_string(g->choices.item[i])) != 0) {
            cli_error("--choice: the text is not UTF-8");
            code = EX_USAGE;
        }
    }
    if (code == 0 && (text = json_dumps(format, 0)) != NULL) {
        step_request_set_json(g->r, "response_format", text, strlen(text));
    }
    free(text);
    json_decref(format);
    return code;
}

/* ID=X, both as JSON writes them: what is in range is the daemon's to say. */
static bool put_bias(struct cli_text *json, const char *arg)
{
    const size_t n = strspn(arg, "0123456789");
    char *end = NULL;

    if (n == 0 || arg[n] != '=' || arg[n + 1] == '\0' ||
        strspn(arg + n + 1, "0123456789+-.eE") != strlen(arg + n + 1)) {
        return false;
    }
    double x = strtod(arg + n + 1, &end);
    char number[32];
    snprintf(number, sizeof(number), "%.17g", x);
    cli_append(json, json->n > 1 ? ", \"" : "\"", json->n > 1 ? 3 : 1);
    cli_append(json, arg, n);
    cli_append(json, STEP_STR("\": "));
    cli_append(json, number, strlen(number));
    return *end == '\0' && isfinite(x);
}

static int set_biases(struct cli_generate *g)
{
    struct cli_text json = {0};
    int code = 0;

    cli_append(&json, STEP_STR("{"));
    for (size_t i = 0; i < g->biases.n && code == 0; i++) {
        if (!put_bias(&json, g->biases.item[i])) {
            cli_error("--logit-bias takes ID=X, not '%s'", g->biases.item[i]);
            code = EX_USAGE;
        }
    }
    cli_append(&json, STEP_STR("}"));
    if (code == 0) {
        step_request_set_json(g->r, "logit_bias", json.p, json.n);
    }
    free(json.p);
    return code;
}

int cli_generate_inputs(struct cli_generate *g, struct cli_text *t)
{
    int code = 0;

    for (size_t i = 0; i < g->files.n && code == 0; i++) {
        code = cli_read_file(t, g->files.item[i]);
    }
    if (code == 0 && g->biases.n > 0) {
        code = set_biases(g);
    }
    if (code == 0 && g->schema != NULL && g->choices.n > 0) {
        cli_error("--choice and --json-schema: one of them");
        code = EX_USAGE;
    }
    if (code == 0 && g->schema != NULL) {
        code = set_schema(g);
    }
    if (code == 0 && g->choices.n > 0) {
        code = set_choices(g);
    }
    return code;
}

/* ---- printing ----------------------------------------------------------- */

struct printer {
    struct cli_generate *g;
    bool show_reasoning;
    bool in_reasoning; /* the last text printed was reasoning */
    char last;         /* last byte printed */
    size_t n_ids;
    struct cli_text content, reasoning; /* --no-stream */
    json_t *calls;                      /* NULL: none */
};

static void put(struct printer *p, const char *text, size_t n)
{
    if (n > 0) {
        cli_write_text(text, n);
        p->last = text[n - 1];
    }
}

static void put_content(struct printer *p, const char *text, size_t n)
{
    if (p->in_reasoning) {
        cli_dim(false);
        cli_write("\n\n", p->last == '\n' ? 1 : 2);
        p->in_reasoning = false;
    }
    put(p, text, n);
}

static void put_reasoning(struct printer *p, const char *text, size_t n)
{
    if (!p->show_reasoning) {
        return;
    }
    if (!p->in_reasoning) {
        cli_dim(true);
        p->in_reasoning = true;
    }
    put(p, text, n);
}

static void put_ids(struct printer *p, const struct step_event *e)
{
    size_t n = 0;
    char path[32];
    int64_t id;

    (void)step_event_get_count(e, "ids", &n);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "ids.%zu", i);
        if (step_event_get_int(e, path, &id) == 0) {
            cli_print("%s%" PRId64, p->n_ids > 0 ? " " : "", id);
            p->n_ids++;
        }
    }
}

static void take_delta(struct printer *p, const struct step_event *e)
{
    const char *kind = "", *text;
    size_t n_kind = 0, n;

    (void)step_event_get_str(e, "kind", &kind, &n_kind);
    text = step_event_text(e, &n);
    if (p->g->ids) {
        put_ids(p, e);
    }
    cli_calls_take(&p->calls, e);
    if (text == NULL || n == 0) {
        return;
    }
    bool content = n_kind == 7 && memcmp(kind, "content", 7) == 0;
    if (!content && (n_kind != 9 || memcmp(kind, "reasoning", 9) != 0)) {
        return;
    }
    struct cli_text *kept = content ? p->g->answer : p->g->reasoning;
    if (kept != NULL) {
        cli_append(kept, text, n);
    }
    if (p->g->no_stream) {
        cli_append(content ? &p->content : &p->reasoning, text, n);
    } else if (!p->g->ids && content) {
        put_content(p, text, n);
    } else if (!p->g->ids) {
        put_reasoning(p, text, n);
    }
}

/* The end of the text: what was kept, and the terminal in its usual state. */
static void finish_text(struct printer *p)
{
    if (p->g->no_stream && !p->g->ids) {
        if (p->reasoning.n > 0) {
            put_reasoning(p, p->reasoning.p, p->reasoning.n);
        }
        if (p->content.n > 0) {
            put_content(p, p->content.p, p->content.n);
        }
    }
    if (p->in_reasoning) {
        cli_dim(false);
    }
    if (p->calls != NULL && !p->g->ids) {
        cli_write("\n", p->last != '\n' && p->last != '\0');
        cli_calls_print(p->calls);
        p->last = '\n';
    }
    bool open = p->g->ids ? p->n_ids > 0 : p->last != '\n' && p->last != '\0';
    if (open && (p->g->newline || p->g->ids || cli_terminal())) {
        cli_write("\n", 1);
    }
}

static double get_real(const struct step_event *e, const char *path)
{
    double v = 0;

    (void)step_event_get_real(e, path, &v);
    return v;
}

static void print_stats(const struct step_event *e)
{
    double n_prompt = get_real(e, "usage.prompt_tokens");
    double n_cached = get_real(e, "usage.cached_tokens");
    double n = get_real(e, "usage.completion_tokens");
    double drafted = get_real(e, "usage.drafted");
    double accepted = get_real(e, "usage.accepted");
    double prefill_ms = get_real(e, "timings.prefill_ms");
    double decode_ms = get_real(e, "timings.decode_ms");
    uint64_t seed = 0;

    (void)step_event_get_uint(e, "seed", &seed);
    fprintf(stderr, "%.0f tokens", n);
    if (decode_ms > 0) {
        fprintf(stderr, " in %.2f s, %.1f tokens/s", decode_ms / 1000,
                n * 1000 / decode_ms);
    }
    fprintf(stderr, "; prompt %.0f tokens, %.0f of them cached", n_prompt,
            n_cached);
    if (prefill_ms > 0) {
        fprintf(stderr, ", %.1f tokens/s",
                (n_prompt - n_cached) * 1000 / prefill_ms);
    }
    if (drafted > 0) {
        fprintf(stderr, "; %.0f of %.0f drafts accepted (%.1f %%)", accepted,
                drafted, accepted * 100 / drafted);
    }
    if (drafted > 0 && n > accepted) {
        fprintf(stderr, ", %.2f tokens a step", n / (n - accepted));
    }
    fprintf(stderr, "; seed %" PRIu64 "\n", seed);
}

static void on_event(void *ctx, const struct step_event *e)
{
    struct printer *p = ctx;

    if (step_event_type(e) == STEP_EVENT_DELTA) {
        take_delta(p, e);
    } else if (step_event_type(e) == STEP_EVENT_DONE ||
               step_event_type(e) == STEP_EVENT_ERROR) {
        finish_text(p);
        cli_flush();
        p->g->ended = true;
    }
    if (step_event_type(e) == STEP_EVENT_DONE && p->g->stats) {
        print_stats(e);
    }
}

/* A string as JSON text to stdout, after a key. */
static void print_member(const char *key, const struct cli_text *t)
{
    json_t *s = json_stringn(t->n > 0 ? t->p : "", t->n);
    char *text = s != NULL ? json_dumps(s, JSON_ENCODE_ANY) : NULL;

    if (text != NULL) {
        cli_print(", \"%s\": ", key);
        cli_write(text, strlen(text));
    }
    free(text);
    json_decref(s);
}

/* --json --no-stream: one object, the last event with the whole text in it. The
 * event's own text is kept as it is: jansson has no unsigned 64 bit. */
static void on_event_json(void *ctx, const struct step_event *e)
{
    struct printer *p = ctx;
    char *text = NULL;

    if (step_event_type(e) == STEP_EVENT_DELTA) {
        take_delta(p, e);
        return;
    }
    bool last = step_event_type(e) == STEP_EVENT_DONE ||
                step_event_type(e) == STEP_EVENT_ERROR;
    if (!last || step_event_get_json(e, "", &text) != 0) {
        return;
    }
    cli_write(text, strlen(text) - 1);
    free(text);
    print_member("content", &p->content);
    if (p->reasoning.n > 0) {
        print_member("reasoning", &p->reasoning);
    }
    char *calls = p->calls != NULL ? json_dumps(p->calls, 0) : NULL;
    if (calls != NULL) {
        cli_print(", \"tool_calls\": ");
        cli_write(calls, strlen(calls));
    }
    free(calls);
    cli_write("}\n", 2);
}

int cli_generate_run(struct cli *cli, struct cli_generate *g)
{
    struct printer p = {.g = g,
                        .show_reasoning = g->show_reasoning || cli_terminal()};
    step_event_fn fn = on_event;

    if (g->ids) {
        step_request_set_bool(g->r, "want_ids", true);
    }
    if (cli->json && g->no_stream) {
        cli->json = false;
        g->ids = false;
        fn = on_event_json;
    }
    g->ended = false;
    int code = cli_run(cli, g->r, fn, &p);
    if (fn == on_event && !g->ended) {
        /* Given up in the middle: the terminal in its usual state still. */
        finish_text(&p);
    }
    if (g->calls != NULL) {
        *g->calls = json_incref(p.calls);
    }
    json_decref(p.calls);
    free(p.content.p);
    free(p.reasoning.p);
    return code;
}
