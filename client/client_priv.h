/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_CLIENT_CLIENT_PRIV_H
#define STEPD_CLIENT_CLIENT_PRIV_H

/* What the files of libstepclient share; the contract is client.h. */

#include <sys/socket.h>
#include <sys/un.h>

#include "client/client.h"
#include "client/wire.h"

/* client_event.c. An event is a decoded frame, or one that the library made up
 * itself (w NULL), an error or a done that says cancelled; that needs no
 * memory, so that every request can be ended. */
struct step_event {
    struct step_event *next;
    struct wire_event *w;
    enum step_event_type type;
    uint64_t id;
    void *userdata;
    int code;
    size_t n; /* bytes of its frame */
    char message[256];
};
/* Takes w over. NULL: no memory, w is destroyed. */
struct step_event *client_event_new(struct wire_event *w);
void client_event_free(struct step_event *e);

/* client_request.c */
struct step_key {
    char *name;
    struct wire_buf value; /* encoded; of a list its items */
    bool list;
    uint32_t n_items;
};
struct step_request {
    char *op;
    struct step_key *key;
    size_t n_keys;
    int err;
    char why[256];
};
/* Appends the request as a frame. */
int client_encode(const struct step_request *r, uint64_t id,
                  struct wire_buf *b);

/* ---- client.c, client_io.c ---------------------------------------------- */

/* Output that may wait, in bytes; beyond it submit says busy. */
#define CLIENT_MAX_OUT ((size_t)2 * WIRE_MAX_FRAME)
/* Events that may wait to be taken; beyond either nothing more is read, and the
 * daemon slows this client down. */
#define CLIENT_MAX_EVENTS 1024
#define CLIENT_MAX_EVENT_BYTES ((size_t)2 * WIRE_MAX_FRAME)
/* What one dispatch reads at most, so that a busy daemon leaves its caller
 * time for others. */
#define CLIENT_MAX_READ ((size_t)256 << 10)

struct pending {
    struct pending *next;
    uint64_t id;
    void *userdata;
    bool internal;          /* hello, cancel: nobody asked for its events */
    struct wire_buf held;   /* the frame, while hello has not come */
    struct wire_buf need;   /* features it needs, each with a NUL behind it */
    struct step_event *end; /* its made-up final event, allocated ahead */
};

struct step_client {
    int fd;
    char *name;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    uint64_t last_id, hello_id;
    struct step_event *hello;
    struct wire_buf out, in;
    size_t out_at, in_at; /* bytes of them that are done with */
    bool no_write;        /* the daemon reads no more; what it wrote may wait */
    bool eof;             /* nothing more to read; in may hold whole frames */
    bool calling;         /* inside step_client_call: the queue has no limit */
    int gone;             /* code and words for what is pending at the end */
    char why[512];
    struct pending *pending;
    struct step_event *first, **last; /* queued, not yet taken */
    size_t n_events, event_bytes;
    struct step_event *taken;
};

/* client_io.c */
void client_read(struct step_client *c);
void client_write(struct step_client *c);
/* Turns input into events, as far as it goes and the queue takes it; at the end
 * of input ends what is pending. */
void client_take_frames(struct step_client *c);
/* Breaks off on this side: code and words for what is pending. */
void client_give_up(struct step_client *c, int code, const char *what,
                    const char *more);
bool client_queue_full(const struct step_client *c);
/* Where the pointer to a pending request is; of id 0 the list's end. */
struct pending **client_find(struct step_client *c, uint64_t id);
/* Takes a request off the list with a made-up final event: an error, or with
 * code 0 done, cancelled. */
void client_end(struct step_client *c, struct pending **at, int code,
                const char *why);
/* Once hello has come: sends what was held, or ends it when this daemon lacks
 * something. Returns where the next one is. */
struct pending **client_release(struct step_client *c, struct pending **at);
void client_free_pending(struct pending *p);
/* Takes the next queued event of a request (0: of any), or NULL. */
struct step_event *client_take(struct step_client *c, uint64_t id);

#endif
