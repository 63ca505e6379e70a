/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl chat on a terminal: a conversation. The messages are kept here and
 * sent whole with each question, unless a session keeps them on the daemon:
 * then only what is new goes out.
 *
 * Where the answer calls tools, whoever sits here is asked for the results, and
 * the answer goes on.
 *
 * The invariant: messages holds questions with their answers, calls and results
 * between them. A question that got no answer is taken back; it is in the
 * history of lines still.
 */

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli.h"

struct repl {
    struct cli *cli;
    struct cli_generate *g;
    struct cli_line *line;
    json_t *messages;
    char *system;  /* NULL: none */
    char *session; /* NULL: the conversation is kept here */
    bool told;     /* the session has got the system message */
    size_t n_sent; /* messages that the session has */
    int code;      /* of the last question, which is the program's */
    bool leave;
};

static void note(const char *what, const char *more)
{
    fprintf(stderr, "%s%s%s\n", what, more != NULL ? ": " : "",
            more != NULL ? more : "");
}

/* ---- the connection ----------------------------------------------------- */

static void on_ping(void *ctx, const struct step_event *e)
{
    (void)ctx;
    (void)e;
}

/* Connected, and hello has come; else says why not. The daemon may have been
 * started anew since the last question. */
static int connect_again(struct repl *q)
{
    struct step_request *r;

    if (q->cli->client != NULL && step_client_get_fd(q->cli->client) >= 0) {
        return 0;
    }
    int code = cli_connect(q->cli);
    if (code == 0 && step_request_create(&r, "ping") == 0) {
        code = cli_run(q->cli, r, on_ping, NULL);
        step_request_destroy(r);
    }
    return code;
}

static void greet(const struct repl *q)
{
    const struct step_event *hello = step_client_hello(q->cli->client);
    const char *model = "";
    size_t n = 0;

    if (hello != NULL) {
        (void)step_event_get_str(hello, "served_model_name", &model, &n);
    }
    fprintf(stderr, "%.*s%s/help lists the commands, Ctrl-D leaves.\n", (int)n,
            model, n > 0 ? ". " : "");
}

/* ---- asking ------------------------------------------------------------- */

/* False: memory is out, or the text is not UTF-8. Takes messages over. */
static bool set_messages(struct repl *q, json_t *messages)
{
    char *text = json_dumps(messages, 0);
    bool ok = text != NULL && step_request_set_json(q->g->r, "messages", text,
                                                    strlen(text)) == 0;

    json_decref(messages);
    free(text);
    return ok;
}

/* The messages that this question needs: all, or with a session the new ones.
 */
static json_t *to_send(const struct repl *q)
{
    json_t *list = json_array();
    size_t n = json_array_size(q->messages);
    size_t from = q->session != NULL ? q->n_sent : 0;

    if (q->system != NULL && (q->session == NULL || !q->told)) {
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "system",
                                              "content", q->system));
    }
    for (size_t i = from; i < n; i++) {
        json_array_append(list, json_array_get(q->messages, i));
    }
    return list;
}

/* Asks the last message; true where there is an answer, or the part of one that
 * came before Ctrl-C. */
static bool answered(struct repl *q, struct cli_text *answer,
                     struct cli_text *reasoning, json_t **calls)
{
    q->code = connect_again(q);
    if (q->code != 0) {
        return false;
    }
    q->g->answer = answer;
    q->g->reasoning = reasoning;
    q->g->calls = calls;
    q->code = cli_generate_run(q->cli, q->g);
    q->g->answer = q->g->reasoning = NULL;
    q->g->calls = NULL;
    if (cli_signal() != 0) {
        /* A daemon that has not ended the request by now is left behind. */
        q->code = 0;
        if (!q->g->ended) {
            step_client_destroy(q->cli->client);
            q->cli->client = NULL;
        }
    }
    return q->code == 0 && (answer->n > 0 || *calls != NULL);
}

/* The answer to the last message becomes a message. *ret_calls: the calls that
 * wait for results, NULL where there are none. */
static bool take_answer(struct repl *q, json_t **ret_calls)
{
    struct cli_text answer = {0}, reasoning = {0};
    json_t *calls = NULL, *m = NULL;

    if (set_messages(q, to_send(q)) &&
        answered(q, &answer, &reasoning, &calls)) {
        m = json_pack("{s:s, s:o?}", "role", "assistant", "content",
                      json_stringn(answer.n > 0 ? answer.p : "", answer.n));
    }
    if (m != NULL && reasoning.n > 0) {
        json_object_set_new(m, "reasoning_content",
                            json_stringn(reasoning.p, reasoning.n));
    }
    if (m != NULL && calls != NULL) {
        json_object_set(m, "tool_calls", calls);
    }
    if (m != NULL) {
        json_array_append_new(q->messages, m);
        q->told = true;
        q->n_sent = json_array_size(q->messages);
        if (q->session != NULL) {
            step_request_set_bool(q->g->r, "append", true);
        }
    }
    free(answer.p);
    free(reasoning.p);
    *ret_calls = calls;
    return m != NULL;
}

/* The result of a call, typed. */
static bool type_result(void *ctx, const char *question, struct cli_text *ret)
{
    struct repl *q = ctx;

    note(question, NULL);
    if (cli_line_read(q->line, ret)) {
        return true;
    }
    q->leave = cli_signal() == 0; /* Ctrl-D */
    return false;
}

static void ask(struct repl *q, const struct cli_text *t)
{
    size_t before = json_array_size(q->messages);
    json_t *user = json_pack("{s:s, s:o?}", "role", "user", "content",
                             json_stringn(t->p, t->n));
    json_t *calls = NULL;
    bool ok;

    if (user == NULL || json_object_get(user, "content") == NULL) {
        note("the text is not UTF-8", NULL);
        json_decref(user);
        return;
    }
    json_array_append_new(q->messages, user);
    do {
        json_decref(calls);
        ok = take_answer(q, &calls) &&
             (calls == NULL ||
              cli_calls_ask(calls, q->messages, type_result, q));
    } while (ok && calls != NULL);
    json_decref(calls);
    while (!ok && json_array_size(q->messages) > before) {
        json_array_remove(q->messages, json_array_size(q->messages) - 1);
    }
    q->n_sent = json_array_size(q->messages);
}

/* ---- commands ----------------------------------------------------------- */

static void set_text(char **to, const char *text)
{
    free(*to);
    *to = text[0] != '\0' ? strdup(text) : NULL;
}

static void forget(struct repl *q)
{
    json_array_clear(q->messages);
    set_text(&q->session, "");
    q->told = false;
    q->n_sent = 0;
    step_request_unset(q->g->r, "session");
    step_request_unset(q->g->r, "append");
}

static void do_help(struct repl *q, const char *arg);

static void do_reset(struct repl *q, const char *arg)
{
    (void)arg;
    forget(q);
    note("the conversation begins anew", NULL);
}

static void do_system(struct repl *q, const char *arg)
{
    if (arg[0] == '\0') {
        note("system message", q->system != NULL ? q->system : "none");
        return;
    }
    set_text(&q->system, strcmp(arg, "-") == 0 ? "" : arg);
    q->told = false;
}

struct find {
    const char *name;
    bool found;
};

static void on_sessions(void *ctx, const struct step_event *e)
{
    struct find *f = ctx;
    char path[64];
    size_t n = 0, n_name = 0;
    const char *name;

    (void)step_event_get_count(e, "sessions", &n);
    for (size_t i = 0; i < n && !f->found; i++) {
        (void)snprintf(path, sizeof(path), "sessions.%zu.name", i);
        f->found = step_event_get_str(e, path, &name, &n_name) == 0 &&
                   n_name == strlen(f->name) &&
                   memcmp(name, f->name, n_name) == 0;
    }
}

/* Whether the daemon has the session: a question can only follow what is there,
 * and another begins it. */
static int find_session(struct repl *q, struct find *f)
{
    struct step_request *r;
    int code = EX_OSERR;

    if (step_request_create(&r, "session_list") == 0) {
        code = cli_run(q->cli, r, on_sessions, f);
        step_request_destroy(r);
    }
    return code;
}

/* 0 or the exit code; said. */
static int use_session(struct repl *q, const char *name)
{
    struct find f = {.name = name};
    int code = connect_again(q);

    if (code != 0) {
        return code;
    }
    if (!step_client_has_feature(q->cli->client, "key.session")) {
        note("unsupported", "this daemon keeps no sessions");
        return EX_UNAVAILABLE;
    }
    code = find_session(q, &f);
    if (code != 0) {
        return code;
    }
    forget(q);
    set_text(&q->session, name);
    step_request_set_str(q->g->r, "session", name, strlen(name));
    step_request_set_bool(q->g->r, "append", f.found);
    q->told = f.found; /* it has one already, or does without */
    note(name, f.found ? "the session goes on" : "a new session");
    return 0;
}

/* What the protocol calls a name. */
static bool is_name(const char *s)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(s);

    return n >= 1 && n <= 64 && s[0] != '.' && strspn(s, letters) == n;
}

static void do_session(struct repl *q, const char *arg)
{
    if (arg[0] == '\0') {
        note("session", q->session != NULL ? q->session : "none");
    } else if (strcmp(arg, "-") == 0) {
        forget(q);
    } else if (!is_name(arg)) {
        note("session", "a name is 1 to 64 of A-Z a-z 0-9 . _ - and does not "
                        "begin with a dot");
    } else {
        use_session(q, arg);
    }
}

/* All that the daemon renders: what the prompt begins with, too. */
static json_t *conversation(const struct repl *q)
{
    json_t *all = json_array();
    if (q->system != NULL) {
        json_array_append_new(all, json_pack("{s:s, s:s}", "role", "system",
                                             "content", q->system));
    }
    json_array_extend(all, q->messages);
    json_t *o = json_pack("{s:o}", "messages", all);
    if (o != NULL && q->g->tools.n > 0) {
        json_object_set_new(o, "tools",
                            json_loadb(q->g->tools.p, q->g->tools.n, 0, NULL));
    }
    if (o != NULL && q->g->effort != NULL) {
        json_object_set_new(o, "reasoning_effort", json_string(q->g->effort));
    }
    if (o != NULL && q->g->no_thinking) {
        json_object_set_new(o, "thinking", json_false());
    }
    return o;
}

/* As `stepctl render` reads it. */
static void do_save(struct repl *q, const char *arg)
{
    if (arg[0] == '\0') {
        note("/save", "into which file?");
        return;
    }
    json_t *o = conversation(q);
    char *text = o != NULL ? json_dumps(o, JSON_INDENT(1)) : NULL;
    int fd = open(arg, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool ok = f != NULL && text != NULL && fprintf(f, "%s\n", text) > 0;
    if (f != NULL && fclose(f) != 0) {
        ok = false;
    }
    if (ok) {
        fprintf(stderr, "%zu messages in %s\n",
                json_array_size(json_object_get(o, "messages")), arg);
    } else {
        note(arg, strerror(errno));
    }
    free(text);
    json_decref(o);
}

static void do_stats(struct repl *q, const char *arg)
{
    (void)arg;
    q->g->stats = !q->g->stats;
    note("statistics after an answer", q->g->stats ? "on" : "off");
}

static void do_quit(struct repl *q, const char *arg)
{
    (void)arg;
    q->leave = true;
}

static const struct {
    const char *name, *arg, *help;
    void (*run)(struct repl *q, const char *arg);
} commands[] = {
    {"/help", "", "this list", do_help},
    {"/reset", "", "forget the conversation, leave the session", do_reset},
    {"/system", " [TEXT|-]", "show, set or drop the system message", do_system},
    {"/session", " [NAME|-]", "go on in a session of the daemon, or leave it",
     do_session},
    {"/save", " FILE", "write the conversation for stepctl render", do_save},
    {"/stats", "", "statistics after each answer: on or off", do_stats},
    {"/quit", "", "leave, as Ctrl-D does", do_quit},
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void do_help(struct repl *q, const char *arg)
{
    (void)q;
    (void)arg;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        fprintf(stderr, "%s%-*s %s\n", commands[i].name,
                (int)(20 - strlen(commands[i].name)), commands[i].arg,
                commands[i].help);
    }
    fprintf(stderr, "A backslash at the end of a line goes on with the next; a "
                    "pasted block is one\nquestion. Ctrl-C ends an answer; "
                    "what came of it stays. A question that begins\nwith a "
                    "slash: put a space before it.\n");
}

/* A line that begins with a slash. */
static void command(struct repl *q, char *line)
{
    size_t n = strcspn(line, " \t\n");
    char *arg = line + n + strspn(line + n, " \t\n");

    for (size_t i = strlen(arg); i > 0 && strchr(" \t\n", arg[i - 1]); i--) {
        arg[i - 1] = '\0';
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strlen(commands[i].name) == n &&
            strncmp(line, commands[i].name, n) == 0) {
            commands[i].run(q, arg);
            return;
        }
    }
    line[n] = '\0';
    note(line, "no such command; /help lists them");
}

/* ---- the loop ----------------------------------------------------------- */

static void loop(struct repl *q)
{
    struct cli_text t = {0};

    while (!q->leave) {
        bool read = cli_line_read(q->line, &t);
        if (!read && cli_signal() == 0) {
            break; /* Ctrl-D */
        }
        if (read && t.p[0] == '/') {
            command(q, t.p);
        } else if (read && strspn(t.p, " \t\n") < t.n) {
            ask(q, &t);
        }
        if (!cli_forget_interrupt()) {
            break; /* SIGTERM, SIGHUP */
        }
        if (cli_output_error() != 0) {
            break;
        }
    }
    free(t.p);
}

int cli_repl(struct cli *cli, struct cli_generate *g, const char *system,
             const char *session)
{
    struct repl q = {.cli = cli, .g = g, .messages = json_array()};

    if (q.messages == NULL) {
        cli_error("out of memory");
        return EX_OSERR;
    }
    set_text(&q.system, system != NULL ? system : "");
    q.code = connect_again(&q);
    if (q.code == 0 && session != NULL) {
        q.code = use_session(&q, session);
    }
    if (q.code == 0) {
        cli_patient();
        greet(&q);
        q.line = cli_line_open();
        loop(&q);
        cli_line_close(q.line);
    }
    free(q.system);
    free(q.session);
    json_decref(q.messages);
    return q.code;
}
