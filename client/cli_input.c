/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Prompts and files. Standard input is read only where a command line leaves no
 * other source, so that stepctl can stand in a `while read` loop.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli.h"

/* More than any frame takes: the rest need not be read. */
#define MAX_INPUT ((size_t)64 << 20)

void cli_append(struct cli_text *t, const char *s, size_t n)
{
    char *grown = realloc(t->p, t->n + n + 1);

    if (grown == NULL) {
        cli_error("out of memory");
        exit(EX_OSERR);
    }
    t->p = grown;
    if (n > 0) {
        memcpy(t->p + t->n, s, n);
    }
    t->n += n;
    t->p[t->n] = '\0';
}

static int read_fd(struct cli_text *t, int fd, const char *name)
{
    char buf[65536];

    cli_append(t, "", 0);
    for (;;) {
        ssize_t n = read(fd, buf, sizeof(buf));
        if (n == 0) {
            return 0;
        }
        if (n < 0 && errno == EINTR && cli_signal() != 0) {
            return 128 + cli_signal();
        }
        if (n < 0 && errno != EINTR) {
            int err = errno;
            cli_error("%s: %s", name, strerror(err));
            return err == EISDIR ? EX_NOINPUT : EX_IOERR;
        }
        if (n > 0) {
            cli_append(t, buf, (size_t)n);
        }
        if (t->n > MAX_INPUT) {
            cli_error("%s: more than %zu MiB", name, MAX_INPUT >> 20);
            return EX_DATAERR;
        }
    }
}

int cli_read_file(struct cli_text *t, const char *path)
{
    if (t->n > 0 && t->p[t->n - 1] != '\n') {
        cli_append(t, "\n", 1);
    }
    if (strcmp(path, "-") == 0) {
        return read_fd(t, STDIN_FILENO, "standard input");
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        cli_error("%s: %s", path, strerror(errno));
        return EX_NOINPUT;
    }
    int code = read_fd(t, fd, path);
    close(fd);
    return code;
}

int cli_read_json(struct cli_text *t, const char *path)
{
    struct step_request *probe = NULL;
    const char *why = "out of memory";
    int code = cli_read_file(t, path);

    if (code != 0) {
        return code;
    }
    /* The key is what the message begins with: the file's name is told whole,
     * and what is wrong is counted in the file's bytes. */
    if (step_request_create(&probe, "") == 0) {
        step_request_set_json(probe, "", t->p, t->n);
        code = cli_exit_code(step_request_error(probe, &why));
    } else {
        code = EX_OSERR;
    }
    if (code != 0) {
        cli_error("%s%s", path, why);
    }
    step_request_destroy(probe);
    return code;
}

int cli_read_prompt(struct cli_text *t, int argc, char **argv)
{
    if (argc > 0 && strcmp(argv[0], "-") != 0) {
        cli_append(t, argv[0], strlen(argv[0]));
        return 0;
    }
    if (argc == 0 && isatty(STDIN_FILENO)) {
        return -1;
    }
    return read_fd(t, STDIN_FILENO, "standard input");
}

int cli_set_prompt(struct step_request *r, const struct cli_text *t)
{
    struct step_request *probe = NULL;
    bool utf8 = step_request_create(&probe, "") == 0 &&
                step_request_set_str(probe, "prompt", t->p, t->n) == 0;

    step_request_destroy(probe);
    if (utf8) {
        step_request_set_str(r, "prompt", t->p, t->n);
    } else {
        step_request_set_bytes(r, "prompt", t->p, t->n);
    }
    return cli_request_error(r);
}

int cli_take_text(struct cli *cli, struct step_request *r, int argc,
                  char **argv)
{
    struct cli_text t = {0};
    int code;

    if (argc > 1) {
        return cli_usage(cli, "the text must be one argument: quote it");
    }
    code = cli_read_prompt(&t, argc, argv);
    if (code < 0) {
        code = cli_usage(cli, "a text is missing");
    }
    if (code == 0) {
        code = cli_set_prompt(r, &t);
    }
    free(t.p);
    return code;
}
