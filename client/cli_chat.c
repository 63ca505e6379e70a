/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl chat: one question, one answer. Without a question, on a terminal, it
 * is a conversation (cli_repl.c).
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli.h"

/* auto, none, required, or the name of a function. */
static void set_tool_choice(struct step_request *r, const char *choice)
{
    static const char head[] =
        "{\"type\": \"function\", \"function\": {\"name\": \"";
    struct cli_text json = {0};

    if (strcmp(choice, "auto") == 0 || strcmp(choice, "none") == 0 ||
        strcmp(choice, "required") == 0 || strpbrk(choice, "\"\\") != NULL) {
        step_request_set_str(r, "tool_choice", choice, strlen(choice));
        return;
    }
    cli_append(&json, head, sizeof(head) - 1);
    cli_append(&json, choice, strlen(choice));
    cli_append(&json, STEP_STR("\"}}"));
    step_request_set_json(r, "tool_choice", json.p, json.n);
    free(json.p);
}

static int set_tools(struct cli_generate *g, const char *path)
{
    int code = cli_read_json(&g->tools, path);

    if (code == 0) {
        step_request_set_json(g->r, "tools", g->tools.p, g->tools.n);
    }
    return code;
}

static void set_reasoning(struct cli_generate *g)
{
    if (g->effort != NULL) {
        step_request_set_str(g->r, "reasoning_effort", g->effort,
                             strlen(g->effort));
    }
    if (g->no_thinking) {
        step_request_set_bool(g->r, "thinking", false);
    }
}

/* The question as the last message. The last newline of standard input or of a
 * file ends its last line and is not part of the question. */
static int set_prompt(struct cli *cli, struct cli_generate *g, int argc,
                      char **argv)
{
    struct cli_text t = {0};
    int code = cli_read_prompt(&t, argc, argv);

    if (code < 0 && g->files.n == 0) {
        /* Typed, but the answer goes to a pipe or file: as cat reads. */
        code = cli_read_file(&t, "-");
    }
    if (code <= 0) {
        code = cli_generate_inputs(g, &t);
    }
    bool argument = argc > 0 && strcmp(argv[0], "-") != 0 && g->files.n == 0;
    if (code == 0 && !argument && t.n > 0 && t.p[t.n - 1] == '\n') {
        t.n--;
    }
    if (code == 0 && t.n == 0) {
        code = cli_usage(cli, "the prompt is empty");
    }
    if (code == 0) {
        step_request_add_message(g->r, "user", t.p, t.n);
    }
    free(t.p);
    return code;
}

/* A conversation, where there is no question and somebody to ask for one. */
static bool is_interactive(const struct cli *cli, const struct cli_generate *g,
                           int argc)
{
    return argc == 0 && g->files.n == 0 && !cli->json && !g->ids &&
           isatty(STDIN_FILENO) && cli_terminal();
}

/* One question, one answer. */
static int ask_once(struct cli *cli, struct cli_generate *g, const char *system,
                    const char *session, int argc, char **argv)
{
    if (system != NULL) {
        step_request_add_message(g->r, "system", system, strlen(system));
    }
    if (session != NULL) {
        step_request_set_str(g->r, "session", session, strlen(session));
    }
    int code = set_prompt(cli, g, argc, argv);
    if (code == 0) {
        code = cli_request_error(g->r);
    }
    if (code == 0) {
        code = cli_connect(cli);
    }
    return code == 0 ? cli_generate_run(cli, g) : code;
}

static int run(struct cli *cli, struct cli_generate *g, int argc, char **argv)
{
    const char *system = NULL, *tools = NULL, *tool_choice = NULL;
    const char *session = NULL;
    struct cli_option options[10 + CLI_N_GENERATE] = {
        {"system", CLI_TEXT, "TEXT", NULL, &system, "the system message"},
        {"tools", CLI_TEXT, "FILE", NULL, &tools,
         "JSON list of functions that the model may call"},
        {"tool-choice", CLI_TEXT, "NAME", NULL, &tool_choice,
         "auto, none, required, or a function's name"},
        {"reasoning", CLI_TEXT, "EFFORT", NULL, &g->effort,
         "low, medium or high"},
        {"no-thinking", CLI_FLAG, NULL, NULL, &g->no_thinking,
         "answer without reasoning"},
        {"show-reasoning", CLI_FLAG, NULL, NULL, &g->show_reasoning,
         "print the reasoning in a pipe too"},
        {"session", CLI_TEXT, "NAME", NULL, &session, "go on in this session"},
        {"append", CLI_KEY_TRUE, NULL, "append", NULL,
         "the prompt follows the session's messages"},
    };
    int code, n;

    cli_generate_options(cli, g, options, 8);
    code = cli_parse(cli, options, g->r, argc, argv, &n);
    if (code >= 0) {
        return code;
    }
    if (n > 1) {
        return cli_usage(cli, "the prompt must be one argument: quote it");
    }
    set_reasoning(g);
    code = tools != NULL ? set_tools(g, tools) : 0;
    if (code == 0 && tool_choice != NULL) {
        set_tool_choice(g->r, tool_choice);
    }
    if (code != 0) {
        return code;
    }
    if (!is_interactive(cli, g, n)) {
        return ask_once(cli, g, system, session, n, argv);
    }
    struct cli_text none = {0};
    code = cli_generate_inputs(g, &none);
    if (code == 0) {
        code = cli_request_error(g->r);
    }
    return code == 0 ? cli_repl(cli, g, system, session) : code;
}

int cli_chat(struct cli *cli, int argc, char **argv)
{
    struct cli_generate g = {.newline = true};

    if (step_request_create(&g.r, "generate") != 0) {
        cli_error("out of memory");
        return EX_OSERR;
    }
    int code = run(cli, &g, argc, argv);
    step_request_destroy(g.r);
    free(g.files.item);
    free(g.choices.item);
    free(g.biases.item);
    free(g.tools.p);
    return code;
}
