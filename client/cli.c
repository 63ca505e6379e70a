/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * stepctl: argv to a command. The table below is the program's contents; what a
 * command does is in cli_<command>.c, what they share in cli_options.c (command
 * lines), cli_input.c, cli_output.c, cli_run.c (connection, events, signals,
 * exit codes) and cli_generate.c (chat and complete).
 *
 * It knows nothing of the daemon but client.h. Text that was asked for goes to
 * stdout and nothing else does.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli.h"
#include "config.h"

static const char prompt_help[] =
    "PROMPT is one argument. Without it, or with -, standard input is the\n"
    "prompt; with it standard input is not read. A --file is appended on a new\n"
    "line.";

static const char chat_help[] =
    "PROMPT is one argument. Without it, or with -, standard input is the\n"
    "prompt; with it standard input is not read. A --file is appended on a new\n"
    "line. On a terminal, without PROMPT, it is a conversation: /help there.";

static const char bench_help[] =
    "Each level keeps so many requests in flight until all are done. Prompts\n"
    "differ in their first tokens, so that none is answered from the cache;\n"
    "answers go on to their length. A message of k tokens after a gap counts\n"
    "as k gaps of a k-th. Times are in milliseconds, as this program saw them.";

const struct cli_command cli_commands[] = {
    {"chat", "[PROMPT]", "ask the model; the answer streams", chat_help,
     cli_chat},
    {"complete", "[PROMPT]", "continue a raw text", prompt_help, cli_complete},
    {"tokenize", "[TEXT]", "token ids of a text, without BOS",
     "Without TEXT, or with -, standard input is the text, byte for byte.",
     cli_tokenize},
    {"detokenize", "[ID...]", "text of token ids",
     "Without IDs they are read from standard input.", cli_detokenize},
    {"render", "FILE.json", "the prompt that messages become",
     "The file holds {messages, tools, reasoning_effort, thinking,\n"
     "add_generation_prompt}; - is standard input.",
     cli_render},
    {"score", "[TEXT]", "logprobs of a text", NULL, cli_score},
    {"status", "", "state of the daemon", NULL, cli_status},
    {"metrics", "", "metrics as Prometheus text", NULL, cli_metrics},
    {"top", "", "live view of jobs and rates",
     "Tables follow each other in a pipe; on a terminal Ctrl-C leaves.",
     cli_top},
    {"bench", "", "load generator with percentiles", bench_help, cli_bench},
    {"sessions", "VERB [NAME...]",
     "list, pin, unpin, save, restore, drop, fork",
     "list shows your sessions, one a line. pin, unpin, save, restore and drop\n"
     "take any number of NAMEs, fork a NAME and the new one's. A session is\n"
     "begun by chat --session NAME and gone on with by --append.\n"
     "Where the cache does not hold its pages any more, pin says that it is not\n"
     "pinned yet, with status 0: the session's next turn tries again.",
     cli_sessions},
    {"cancel", "JOB", "end a job of your own (see status)", NULL, cli_cancel},
    {"drain", "", "take no new work, finish what runs (admins)", NULL,
     cli_drain},
    {"reload", "", "read the configuration again (admins)",
     "Prints the keys that have changed. Where a file is wrong, or a key is\n"
     "that takes a restart, nothing is changed and the line is named.",
     cli_reload},
    {"ping", "", "ask whether the daemon is there",
     "Prints the state. With --wait it returns when the daemon is ready, and\n"
     "with 75 when it is not in time.",
     cli_ping},
    {0},
};

static void print_help(void)
{
    printf("Usage: stepctl [-s SOCKET] COMMAND [OPTION]... [ARGUMENT]...\n\n");
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        char left[40];
        snprintf(left, sizeof(left), "%s %s", c->name, c->args);
        printf("  %-24s %s\n", left, c->brief);
    }
    printf(
        "\nstepctl COMMAND --help says more.\n\n"
        "  -s SOCKET    a path, or the name of an instance; else $STEPD_SOCKET,\n"
        "               $XDG_RUNTIME_DIR/stepd/stepd.sock or\n"
        "               /run/stepd/stepd.sock\n"
        "  --version    print the version\n");
}

static const struct cli_command *find(const char *name)
{
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        if (strcmp(c->name, name) == 0) {
            return c;
        }
    }
    return NULL;
}

/* Options before the command. Index of the command, or minus the exit code and
 * one. */
static int parse_global(struct cli *cli, int argc, char **argv)
{
    int i = 1;

    for (; i < argc && argv[i][0] == '-'; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
            print_help();
            return -1 - EX_OK;
        }
        if (strcmp(a, "--version") == 0) {
            printf("stepctl %s\n", PACKAGE_VERSION);
            return -1 - EX_OK;
        }
        if (strncmp(a, "-s", 2) != 0) {
            return -1 - cli_usage(cli, "unknown option %s", a);
        }
        if (a[2] != '\0') {
            cli->socket = a + 2;
        } else if (++i < argc) {
            cli->socket = argv[i];
        } else {
            return -1 - cli_usage(cli, "-s needs an argument");
        }
    }
    return i < argc ? i : -1 - cli_usage(cli, "which command?");
}

int cli_with_request(struct cli *cli, const char *op,
                     int (*run)(struct cli *cli, struct step_request *r,
                                int argc, char **argv),
                     int argc, char **argv)
{
    struct step_request *r;
    int err = step_request_create(&r, op);

    if (err != 0) {
        cli_error("%s", step_strerror(err));
        return cli_exit_code(err);
    }
    int code = run(cli, r, argc, argv);
    step_request_destroy(r);
    return code;
}

/* --help and --version print by stdio: they may find the disk full, too. */
static int leave(int code)
{
    if (fflush(stdout) != 0 && errno != EPIPE) {
        cli_error("standard output: %s", strerror(errno));
        return EX_IOERR;
    }
    return code;
}

int main(int argc, char **argv)
{
    struct cli cli = {0};

    cli_setup();
    int i = parse_global(&cli, argc, argv);
    if (i < 0) {
        return leave(-1 - i);
    }
    const struct cli_command *command = find(argv[i]);
    if (command == NULL) {
        return cli_usage(&cli, "no command %s", argv[i]);
    }
    cli.command = command->name;
    int code = command->run(&cli, argc - i, argv + i);
    step_client_destroy(cli.client);
    int err = cli_flush();
    if (err != 0 && err != EPIPE) {
        cli_error("standard output: %s", strerror(err));
        code = EX_IOERR;
    }
    return cli_signal() != 0 ? 128 + cli_signal() : leave(code);
}
