/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_CLIENT_CLI_H
#define STEPD_CLIENT_CLI_H

/*
 * What the commands of stepctl share. One process, one thread, one command, one
 * request at a time; each command is a function in cli_<command>.c that returns
 * the exit code.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sysexits.h>

#include "client/client.h"

#define CLI_INTERRUPTED 130

struct cli {
    const char *command; /* "chat" */
    const char *socket;  /* -s, or NULL */
    bool json;           /* events as they come, one a line */
    bool hears_json;     /* with json the command sees the events too */
    bool strict;         /* length is an error */
    bool quiet;          /* cli_run does not say what went wrong */
    int64_t until_ms;    /* when cli_run gives up (cli_now_ms); 0: never */
    struct step_client *client;
};

struct cli_command {
    const char *name;
    const char *args;  /* "[PROMPT]" */
    const char *brief; /* one line */
    const char *more;  /* what --help says below the options, or NULL */
    int (*run)(struct cli *cli, int argc, char **argv);
};
extern const struct cli_command cli_commands[]; /* ends with name NULL */

int cli_cancel(struct cli *cli, int argc, char **argv);
int cli_chat(struct cli *cli, int argc, char **argv);
int cli_complete(struct cli *cli, int argc, char **argv);
int cli_drain(struct cli *cli, int argc, char **argv);
int cli_detokenize(struct cli *cli, int argc, char **argv);
int cli_metrics(struct cli *cli, int argc, char **argv);
int cli_ping(struct cli *cli, int argc, char **argv);
int cli_reload(struct cli *cli, int argc, char **argv);
int cli_render(struct cli *cli, int argc, char **argv);
int cli_status(struct cli *cli, int argc, char **argv);
int cli_tokenize(struct cli *cli, int argc, char **argv);
int cli_score(struct cli *cli, int argc, char **argv);
int cli_sessions(struct cli *cli, int argc, char **argv);
int cli_top(struct cli *cli, int argc, char **argv);
int cli_bench(struct cli *cli, int argc, char **argv);

/* Runs a command with a request of an op, destroyed at the end. */
int cli_with_request(struct cli *cli, const char *op,
                     int (*run)(struct cli *cli, struct step_request *r,
                                int argc, char **argv),
                     int argc, char **argv);

/* ---- cli_options.c ------------------------------------------------------ */

enum cli_kind {
    CLI_FLAG,    /* *(bool *)to = true */
    CLI_TEXT,    /* *(const char **)to = argument */
    CLI_SECONDS, /* *(double *)to */
    CLI_KEY_INT, /* the others set a key of the request */
    CLI_KEY_UINT,
    CLI_KEY_REAL,
    CLI_KEY_STR,
    CLI_KEY_MS, /* seconds; the key is in milliseconds */
    CLI_KEY_TRUE,
    CLI_KEY_FALSE,
    CLI_KEY_LIST, /* appends a string */
    CLI_LIST      /* appends the argument to a struct cli_list */
};

struct cli_list {
    const char **item;
    size_t n;
};

struct cli_option {
    const char *name; /* "max-tokens"; NULL ends a table */
    enum cli_kind kind;
    const char *arg; /* "N"; NULL for a flag */
    const char *key; /* of the request */
    void *to;        /* where the others put it */
    const char *help;
};

/* Parses the options of a command, in any place among its arguments, into r
 * (may be NULL) and where they point. Arguments are left in argv, *ret_argc of
 * them. -1: go on; else the exit code (--help is one too). */
int cli_parse(struct cli *cli, const struct cli_option *options,
              struct step_request *r, int argc, char **argv, int *ret_argc);
/* A wrong command line: says so and where to read more; EX_USAGE. */
int cli_usage(const struct cli *cli, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- cli_run.c ---------------------------------------------------------- */

/* Signals, streams that are closed. First of all. */
void cli_setup(void);
/* The signal that asked for an end, or 0. */
int cli_signal(void);
/* From now on a second SIGINT does not end the program. */
void cli_patient(void);
/* Forgets a SIGINT; false where another signal has come. */
bool cli_forget_interrupt(void);
/* Blocks the signals that ask for an end, SIGWINCH and SIGTSTP; cli_wait_input
 * lets them in, waits for standard input, and is true when there is some. */
void cli_block_signals(bool on);
bool cli_wait_input(void);
/* Connects, or says why not and returns the exit code; 0 when connected. */
int cli_connect(struct cli *cli);
int cli_exit_code(int step_error);
/* Runs a request to its end, fn with each event (in JSON mode events are
 * printed instead), and returns the exit code of the command; what went wrong
 * has been said. Interrupted: cancelled first. EX_TEMPFAIL, without a word,
 * when until_ms has come. */
int cli_run(struct cli *cli, const struct step_request *r, step_event_fn fn,
            void *ctx);
/* A failed setter of r: says so, the exit code. */
int cli_request_error(const struct step_request *r);
void cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int64_t cli_now_ms(void);
/* Waits on the client's fd, ms at most (-1: no limit); a signal ends it. */
void cli_wait(struct cli *cli, int ms);

/* ---- cli_output.c ------------------------------------------------------- */

/* Text for stdout. It stops by itself when the reader has gone. */
void cli_write(const char *s, size_t n);
void cli_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Text that somebody else made: on a terminal control characters are shown and
 * not obeyed. */
void cli_write_text(const char *s, size_t n);
void cli_dim(bool on); /* only on a terminal with colours */
bool cli_terminal(void);
bool cli_moves(void); /* a terminal that can move its cursor */
/* 0, EPIPE, or another errno of the output. */
int cli_output_error(void);
int cli_flush(void);
/* Events of an op whose result is ids (ctx: a size_t, 0), on one line, or text
 * (ctx: a char, '\n'), as it is. */
void cli_print_ids(void *ctx, const struct step_event *e);
void cli_print_text(void *ctx, const struct step_event *e);
int cli_columns(void); /* of the terminal on stderr; 80 if there is none */
/* A line of progress on stderr, if that is a terminal; NULL takes it away. */
void cli_progress(const char *line);

/* ---- cli_input.c -------------------------------------------------------- */

struct cli_text {
    char *p;
    size_t n;
};
/* Appends a file ("-": stdin), with a newline before it where the text before
 * ends without one. 0 or the exit code; said. */
int cli_read_file(struct cli_text *t, const char *path);
/* The same with a file of JSON, which is kept as it is. */
int cli_read_json(struct cli_text *t, const char *path);
/* Appends bytes; exits when memory is out. */
void cli_append(struct cli_text *t, const char *s, size_t n);
/* The PROMPT or TEXT of a command: the argument, or stdin where it is "-", or
 * missing while stdin is no terminal. -1: neither, there is a terminal. */
int cli_read_prompt(struct cli_text *t, int argc, char **argv);
/* Sets "prompt": as text, or as bytes where it is not UTF-8. */
int cli_set_prompt(struct step_request *r, const struct cli_text *t);
/* Both, for a command whose one argument is a text. 0 or the exit code; said.
 */
int cli_take_text(struct cli *cli, struct step_request *r, int argc,
                  char **argv);

/* ---- cli_calls.c -------------------------------------------------------- */

struct json_t; /* jansson's */

/* Adds the call that a delta tells of, if it tells of a whole one, to a list in
 * the form of a message's tool_calls; *calls NULL: none yet, the caller's to
 * drop. */
void cli_calls_take(struct json_t **calls, const struct step_event *e);
/* One a line: get_time(city="Oslo"). */
void cli_calls_print(const struct json_t *calls);
/* Asks somebody for the result of each and appends it as a message of role
 * tool. False when nobody answers; messages then has those answered before. */
typedef bool (*cli_ask_fn)(void *ctx, const char *question,
                           struct cli_text *ret);
bool cli_calls_ask(const struct json_t *calls, struct json_t *messages,
                   cli_ask_fn ask, void *ctx);

/* ---- cli_generate.c ----------------------------------------------------- */

/* What chat and complete have in common. */
struct cli_generate {
    struct step_request *r;
    bool show_reasoning, stats, no_stream, ids;
    const char *schema; /* --json-schema FILE */
    struct cli_list files, choices, biases;
    struct cli_text tools; /* --tools FILE: what it holds */
    const char *effort;    /* --reasoning EFFORT */
    bool no_thinking;
    bool newline; /* the text ends with one, in a pipe too */
    struct cli_text *answer, *reasoning; /* NULL, or where to keep the text */
    bool ended;            /* the last event of the last run has come */
    struct json_t **calls; /* NULL, or where to keep the answer's tool calls */
};
/* Options of both: appended to own (which has room for CLI_N_GENERATE more). */
#define CLI_N_GENERATE 28
void cli_generate_options(struct cli *cli, struct cli_generate *g,
                          struct cli_option *own, size_t n_own);
/* --file, --json-schema, --choice into text and request. */
int cli_generate_inputs(struct cli_generate *g, struct cli_text *t);
int cli_generate_run(struct cli *cli, struct cli_generate *g);

/* ---- cli_line.c, cli_repl.c --------------------------------------------- */

/* Prompts typed at the terminal. */
struct cli_line;
struct cli_line *cli_line_open(void);
void cli_line_close(struct cli_line *l);
/* The next prompt, over what t held. False at the end of input, or when a
 * signal came. */
bool cli_line_read(struct cli_line *l, struct cli_text *t);

/* A conversation. system and session may be NULL. */
int cli_repl(struct cli *cli, struct cli_generate *g, const char *system,
             const char *session);

#endif
