/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */

/*
 * Sessions to disk and back, the engine's half: pages are exported and imported
 * between steps, a chunk at a time, so that running requests go on meanwhile.
 * Engine thread only; the files are store.c's.
 *
 * A save holds its pages by a pin and has copies of everything else: the
 * session may go on, and the next save writes what has come since. A load fills
 * pages of its own, which enter the prefix index as if they had just been
 * computed.
 *
 * The invariant: one transfer runs at a time; what fails is told to whoever
 * asked, and the session is as before.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/die.h"
#include "daemon/sched/core_priv.h"

/* What is moved between two steps, which running requests wait for: of a save
 * so many chunks at the most; of a load what comes in a share of the step's
 * target. The reader has the cores to itself only meanwhile, so it is waited
 * for, but no longer than a chunk takes that lies in the page cache. */
#define CHUNKS_A_STEP 4
#define LOAD_SHARE 4
#define CHUNK_WAIT_MS 1

struct saving {
    struct saving *next;
    struct store_transfer *t;
    uint32_t uid;
    char tenant[JOB_MAX_TENANT + 1];
    struct job *job; /* who asked; NULL: nobody */
    bool started;
    bool dropped; /* the session was, since: its file must not stay */
    /* save */
    struct prefix_pin *pin, *open_pin;
    int32_t *page[STORE_N_RUNS];
    int sent[STORE_N_RUNS];
    /* load */
    struct session *into;
    struct session_pages open; /* of the run of that name */
    bool no_room;     /* the pages are not read: they will be computed */
    char why[256];    /* then, */
    const char *code; /* for who wants nothing but the pages; of a save that was
                       * given up */
};

static void saving_destroy(struct core *c, struct saving *x)
{
    prefix_unpin(c->prefix, x->pin);
    prefix_unpin(c->prefix, x->open_pin);
    session_destroy(x->into);
    for (int i = 0; i < x->open.n; i++) {
        kvpool_drop(c->pool, MODEL_SLIDING, x->open.page[i]);
    }
    free(x->open.page);
    for (int i = 0; i < STORE_N_RUNS; i++) {
        free(x->page[i]);
    }
    store_transfer_destroy(x->t);
    free(x);
}

static struct saving *enqueue(struct core *c, const struct named *n,
                              struct job *j)
{
    struct saving *x = xcalloc(1, sizeof(*x)), **at = &c->saving;

    if (store_transfer_create(&x->t) < 0) {
        free(x);
        return NULL;
    }
    x->uid = n->uid;
    x->job = j;
    (void)snprintf(x->tenant, sizeof(x->tenant), "%s", n->tenant);
    store_owner(n->uid, n->tenant, x->t->owner, sizeof(x->t->owner));
    (void)snprintf(x->t->name, sizeof(x->t->name), "%s", n->name);
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = x;
    return x;
}

static struct named *named_of(const struct core *c, const struct saving *x)
{
    return named_find(&c->named, x->uid, x->tenant, x->t->name);
}

/* ---- saving -------------------------------------------------------------- */

/* What is there and what is on its way. */
static uint64_t disk_of(const struct core *c, const struct named *but, bool own)
{
    uint64_t sum = 0;

    for (const struct named *n = c->named.first; n != NULL; n = n->next) {
        if (n != but && (!own || (n->uid == but->uid &&
                                  strcmp(n->tenant, but->tenant) == 0))) {
            sum += n->file_bytes > n->saving_bytes ? n->file_bytes
                                                   : n->saving_bytes;
        }
    }
    return sum;
}

static void *copy_of(const void *p, size_t n)
{
    void *copy = malloc(n + 1);

    if (copy != NULL && n > 0) {
        memcpy(copy, p, n);
    }
    return copy;
}

/* Which pages the run is made of: those of a pin, first below end. */
static int list_run(struct saving *x, enum store_run run,
                    const struct prefix_pin *pin, int end)
{
    enum model_group g = store_group(run);
    int first = prefix_pin_first(pin, g), n = prefix_pin_pages(pin, g);

    x->page[run] = malloc((size_t)n * sizeof(int32_t) + 1);
    if (x->page[run] == NULL) {
        return -ENOMEM;
    }
    prefix_pin_list(pin, g, x->page[run]);
    n = first >= end ? 0 : first + n > end ? end - first : n;
    x->t->head.n_pages[run] = (uint32_t)n;
    x->t->head.first_page[run] = n > 0 ? (uint32_t)first : (uint32_t)end;
    return 0;
}

static int list_runs(struct core *c, struct named *n, struct saving *x, int len)
{
    struct store_head *h = &x->t->head;
    int end = (len + MODEL_PAGE_TOK - 1) / MODEL_PAGE_TOK, r;

    r = list_run(x, STORE_FULL, x->pin, end);
    r = r < 0 ? r : list_run(x, STORE_SLIDING, x->pin, end);
    if (r < 0 || !core_has_open(c, n, len) ||
        prefix_pin(c->prefix, n->salt, n->ids, n->n_open, &x->open_pin) < 0) {
        return r;
    }
    h->n_open = (uint32_t)n->n_open;
    return list_run(x, STORE_OPEN, x->open_pin,
                    (int)h->first_page[STORE_SLIDING]);
}

/* Whose bits they are: what the device is called without its number of threads,
 * which changes none (design.md 4.1). */
static void kernels_of(const struct core *c, char *buf, size_t n)
{
    const char *d = c->info->device;

    memset(buf, 0, n);
    (void)snprintf(buf, n, "%.*s", (int)strcspn(d, ","), d);
}

/* Everything but the pages. The KV that is saved is what is there now: the
 * longest prefix, usually all. */
static int prepare(struct core *c, struct named *n, struct saving *x)
{
    struct store_transfer *t = x->t;
    struct store_head *h = &t->head;
    int len = prefix_look(c->prefix, n->salt, n->ids, n->n_committed, true);
    const void *aux = NULL, *open_aux = NULL;
    int r = 0;

    if (len > 0) {
        r = prefix_pin(c->prefix, n->salt, n->ids, len, &x->pin);
    }
    *h = (struct store_head){
        .fingerprint = c->info->fingerprint,
        .flags = n->pinned ? STORE_PINNED : 0,
        .n_ids = (uint32_t)n->n_ids,
        .n_committed = r == 0 ? (uint32_t)len : 0,
        .messages_bytes = (uint32_t)n->messages.n,
        .tools_bytes = (uint32_t)n->tools.n,
    };
    kernels_of(c, h->kernels, sizeof(h->kernels));
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        h->page_bytes[g] = model_page_bytes(c->conf.model, g);
    }
    if (x->pin != NULL) {
        if (list_runs(c, n, x, len) < 0) {
            return -ENOMEM;
        }
        aux = prefix_pin_aux(x->pin);
    }
    if (x->open_pin != NULL) {
        open_aux = prefix_pin_aux(x->open_pin);
    }
    h->aux_bytes = aux != NULL ? (uint32_t)model_aux_bytes(c->conf.model) : 0;
    h->open_aux_bytes =
        open_aux != NULL ? (uint32_t)model_aux_bytes(c->conf.model) : 0;
    t->ids = copy_of(n->ids, (size_t)n->n_ids * 4);
    t->messages = copy_of(n->messages.p, n->messages.n);
    t->tools = copy_of(n->tools.p, n->tools.n);
    t->aux = copy_of(aux, h->aux_bytes);
    t->open_aux = copy_of(open_aux, h->open_aux_bytes);
    store_head_finish(h);
    return t->ids == NULL || t->messages == NULL || t->tools == NULL ||
                   t->aux == NULL || t->open_aux == NULL
               ? -ENOMEM
               : 0;
}

static void undo(struct core *c, struct saving *x)
{
    struct saving **at = &c->saving;

    while (*at != x) {
        at = &(*at)->next;
    }
    *at = x->next;
    saving_destroy(c, x);
}

static void say_unsaved(struct core *c, const char *name, struct job *j,
                        const char *code, const char *why)
{
    if (j != NULL) {
        core_refuse(c, j, code, "session", "%s", why);
    } else {
        core_say(c, 4, "session %s: not saved: %s", name, why);
    }
}

void core_save(struct core *c, struct named *n, struct job *j)
{
    struct saving *x;
    char why[256];
    uint64_t bytes;

    if (c->store == NULL) {
        say_unsaved(c, n->name, j, "unsupported",
                    "there is no state_dir to save sessions in");
        return;
    }
    x = enqueue(c, n, j);
    if (x == NULL || prepare(c, n, x) < 0) {
        if (x != NULL) {
            undo(c, x);
        }
        say_unsaved(c, n->name, j, "no_memory", "no memory to save a session");
        return;
    }
    bytes = x->t->head.file_bytes;
    if (disk_of(c, n, true) + bytes > c->conf.session_disk_per_owner ||
        disk_of(c, n, false) + bytes > c->conf.session_disk) {
        (void)snprintf(why, sizeof(why),
                       "%" PRIu64 " bytes beside %" PRIu64
                       " of this user's sessions (at most %" PRIu64
                       ") and %" PRIu64 " of all (at most %" PRIu64 ")",
                       bytes, disk_of(c, n, true),
                       c->conf.session_disk_per_owner, disk_of(c, n, false),
                       c->conf.session_disk);
        undo(c, x);
        say_unsaved(c, n->name, j, "busy", why);
        return;
    }
    n->changed = false; /* what changes from now on is not in the file */
    n->n_saving++;
    n->saving_bytes = bytes > n->saving_bytes ? bytes : n->saving_bytes;
    (void)core_tend(c);
}

/* Saves that are on their way leave no file: the name may be another
 * conversation's by then. */
void core_drop_saves(struct core *c, struct named *n)
{
    for (struct saving *x = c->saving; x != NULL; x = x->next) {
        if (!x->t->load && !x->dropped && named_of(c, x) == n) {
            x->dropped = true;
            atomic_store(&x->t->unwanted, true);
        }
    }
    n->n_saving = 0;
    n->saving_bytes = 0;
}

/* The thread ends it. */
static size_t give_up(struct saving *x, const char *code, const char *why)
{
    x->code = code;
    (void)snprintf(x->why, sizeof(x->why), "session %s: %s", x->t->name, why);
    mbox_close(x->t->chunk);
    return 0;
}

/* The next chunk of pages to the thread: bytes, 0: none. */
static size_t export(struct core *c, struct saving *x)
{
    const struct store_head *h = &x->t->head;
    enum store_run run = STORE_FULL;
    enum model_group g;
    struct store_chunk *k;
    size_t bytes;
    int n, r = 0;

    if (x->code != NULL) {
        return 0;
    }
    while (run < STORE_OPEN && x->sent[run] == (int)h->n_pages[run]) {
        run++;
    }
    g = store_group(run);
    n = (int)h->n_pages[run] - x->sent[run];
    if (n == 0 || mbox_count(x->t->chunk) >= STORE_CHUNKS) {
        return 0;
    }
    bytes = h->page_bytes[g];
    if ((size_t)n * bytes > c->conf.store_chunk) {
        n = bytes > c->conf.store_chunk ? 1
                                        : (int)(c->conf.store_chunk / bytes);
    }
    k = malloc(sizeof(*k) + (size_t)n * bytes);
    if (k == NULL) {
        return give_up(x, "no_memory", "no memory to save it");
    }
    k->run = run;
    k->first = x->sent[run];
    k->n = n;
    for (int i = 0; r == 0 && i < n; i++) {
        r = model_export_page(c->conf.model, g, x->page[run][k->first + i],
                              k->data + (size_t)i * bytes);
    }
    if (r < 0) {
        free(k);
        return give_up(x, "internal", "its pages cannot be read");
    }
    if (mbox_push(x->t->chunk, k) < 0) { /* the thread has ended it */
        free(k);
        return 0;
    }
    x->sent[run] += n;
    return sizeof(*k) + (size_t)n * bytes;
}

/* A file that is not there is no session where one is read; a folder that is
 * not there, where one is saved, says nothing of the session. */
static const char *code_of(int r, bool load)
{
    switch (r) {
    case -ENOENT:
        return load ? "not_found" : "internal";
    case -ESTALE:
        return "not_found";
    case -EBADMSG:
        return "corrupt";
    case -ENOSPC:
    case -EDQUOT:
    case -EFBIG:
    case -ENOMEM:
        return "no_memory";
    case -ECANCELED:
        return "draining";
    default:
        return "internal";
    }
}

static void saved(struct core *c, struct saving *x, int state)
{
    struct named *n = x->dropped ? NULL : named_of(c, x);

    BUG_ON(!x->dropped && n == NULL);
    if (n != NULL && --n->n_saving == 0) {
        n->saving_bytes = 0;
    }
    if (state < 0) {
        if (n != NULL) {
            n->changed = true;
        }
        say_unsaved(c, x->t->name, x->job,
                    x->code != NULL ? x->code : code_of(state, false),
                    x->code != NULL ? x->why : x->t->why);
        return;
    }
    if (n == NULL) { /* it was renamed before it was known to be unwanted */
        (void)store_unlink(c->store, x->t->owner, x->t->name);
    } else {
        n->file_bytes = x->t->head.file_bytes;
        n->file_pinned = (x->t->head.flags & STORE_PINNED) != 0;
    }
    core_say(c, 6, "session %s: %u tokens saved, %" PRIu64 " bytes", x->t->name,
             x->t->head.n_committed, x->t->head.file_bytes);
    if (x->job != NULL) {
        core_session_done(c, x->job, n);
    }
}

int core_unlink(struct core *c, const struct named *n, char *why, size_t n_why)
{
    char owner[JOB_MAX_TENANT + 16];
    int r;

    store_owner(n->uid, n->tenant, owner, sizeof(owner));
    r = store_unlink(c->store, owner, n->name);
    if (r < 0) {
        (void)snprintf(why, n_why, "%s: %s", n->name, strerror(-r));
    }
    return r;
}

/* ---- loading ------------------------------------------------------------- */

void core_load(struct core *c, struct named *n)
{
    struct saving *x;

    if (n->moving) {
        return;
    }
    x = enqueue(c, n, NULL);
    if (x == NULL) {
        core_named_unread(c, n, "no_memory", "no memory to read a session");
        return;
    }
    n->moving = true;
    x->t->load = true;
    (void)core_tend(c);
}

static struct session_pages *pages_of(struct saving *x, enum store_run run)
{
    return run == STORE_OPEN ? &x->open : &x->into->group[store_group(run)];
}

/* Whether the file's pages fit beside those that are in use; nothing is evicted
 * for what does not. */
static bool may_fit(struct core *c, struct saving *x)
{
    const uint32_t *n = x->t->head.n_pages;
    const uint32_t want[MODEL_N_GROUPS] = {
        [MODEL_FULL] = n[STORE_FULL],
        [MODEL_SLIDING] = n[STORE_SLIDING] + n[STORE_OPEN],
    };
    const struct core_owner owner = {x->uid, x->tenant};
    struct prefix_counts counts;
    char why[128];
    bool never;

    if (!core_owner_room(c, &owner, want, &never, why, sizeof(why))) {
        x->code = never ? "no_memory" : "busy";
        (void)snprintf(x->why, sizeof(x->why), "session %.64s: %s: %s",
                       x->t->name, why,
                       never ? "unpin some, or a turn computes them again"
                             : "try again, or a turn computes them again");
        return false;
    }
    prefix_counts(c->prefix, &counts);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int room = kvpool_free_pages(c->pool, (enum model_group)g) +
                   counts.evictable[g];
        int most =
            kvpool_pages(c->pool, (enum model_group)g) - counts.pinned[g];

        if ((int64_t)want[g] > room) {
            never = (int64_t)want[g] > most;
            x->code = never ? "no_memory" : "busy";
            (void)snprintf(x->why, sizeof(x->why),
                           "session %s: its pages do not fit: %u are needed, "
                           "%d of %d can be had now (%d are pinned): %s",
                           x->t->name, want[g], room,
                           kvpool_pages(c->pool, (enum model_group)g),
                           counts.pinned[g],
                           never ? "unpin some, or a turn computes them again"
                                 : "try again, or a turn computes them again");
            return false;
        }
    }
    return true;
}

/* Pages for what the file has. Where there is no room now, who asked for just
 * that is told; a turn finds the session all the same, and computes its tokens.
 */
static void make_room(struct core *c, struct saving *x)
{
    const struct store_head *h = &x->t->head;
    int n = (int)h->n_committed, r;

    x->no_room = true;
    if (n == 0) {
        x->no_room = false;
        return;
    }
    if (c->conf.no_prefix_cache) {
        x->code = "unsupported";
        (void)snprintf(x->why, sizeof(x->why),
                       "session %s: with prefix_cache = no nothing computed is "
                       "kept: a turn computes it again",
                       x->t->name);
        return;
    }
    if (!may_fit(c, x) || session_create(&x->into, c->pool, &c->geo, x->t->ids,
                                         (int)h->n_ids) < 0) {
        return;
    }
    for (int i = 0; i < STORE_N_RUNS; i++) {
        enum model_group g = store_group((enum store_run)i);
        struct session_pages *p = pages_of(x, (enum store_run)i);
        int want = (int)h->n_pages[i];

        p->page = malloc((size_t)want * sizeof(*p->page) + 1);
        if (p->page == NULL || !prefix_evict(c->prefix, g, want)) {
            return;
        }
        r = kvpool_alloc(c->pool, g, want, p->page);
        BUG_ON(r < 0);
        p->cap = p->n = want;
        p->first = (int)h->first_page[i];
    }
    x->no_room = false;
}

/* The next chunk from the thread, waited for: bytes, 0: none. */
static size_t import(struct core *c, struct saving *x, int wait_ms)
{
    struct store_chunk *k = mbox_pop_wait(x->t->chunk, wait_ms);
    size_t bytes = sizeof(*k);
    int r = 0;

    if (k == NULL) {
        return 0;
    }
    if (k->n == 0) {
        make_room(c, x);
    }
    for (int i = 0; r == 0 && i < k->n && !x->no_room; i++) {
        enum model_group g = store_group(k->run);

        r = model_import_page(c->conf.model, g,
                              pages_of(x, k->run)->page[k->first + i],
                              k->data + (size_t)i * x->t->head.page_bytes[g]);
        bytes += x->t->head.page_bytes[g];
    }
    if (r < 0) {
        x->no_room = true;
    }
    free(k);
    return bytes;
}

/* The checkpoint of the open turn: its window is what the end's has of it and
 * the run of its own. */
static void enter_open(struct core *c, struct saving *x, struct named *n)
{
    const struct store_head *h = &x->t->head;
    struct session_pages *at = &x->into->group[MODEL_SLIDING], end = *at;
    int len = (x->open.first + x->open.n) * MODEL_PAGE_TOK, r = 0;

    if (x->open.n > 0) {
        *at = x->open;
        r = prefix_put(c->prefix, n->salt, x->into,
                       len < n->n_open ? len : n->n_open,
                       h->open_aux_bytes > 0 ? 0 : -1);
        *at = end;
    }
    if (r == 0) {
        (void)prefix_mark(c->prefix, n->salt, n->ids, n->n_open,
                          h->open_aux_bytes > 0 ? x->t->open_aux : NULL);
    }
}

static void enter_index(struct core *c, struct saving *x, struct named *n)
{
    const struct store_head *h = &x->t->head;
    int len = (int)h->n_committed;
    char why[192];

    if (x->no_room || len == 0) {
        return;
    }
    if (prefix_put(c->prefix, n->salt, x->into, len,
                   h->aux_bytes > 0 ? 0 : -1) == 0) {
        (void)prefix_mark(c->prefix, n->salt, n->ids, len,
                          h->aux_bytes > 0 ? x->t->aux : NULL);
        if (n->n_open > 0) {
            enter_open(c, x, n);
        }
    }
    if (n->pinned && core_pin(c, n, why, sizeof(why)) < 0) {
        core_say(c, 4, "session %s: not pinned: %s", n->name, why);
    }
}

/* The first in the queue that want nothing but the pages; true: there were. */
static bool refuse_restores(struct core *c, struct saving *x, struct named *n)
{
    bool any = false;

    while (n->wait != NULL && n->wait->kind == JOB_SESSION &&
           n->wait->op == SESSION_RESTORE) {
        core_refuse(c, named_next(n), x->code != NULL ? x->code : "no_memory",
                    "session", "%s",
                    x->why[0] != '\0' ? x->why
                                      : "no memory to restore a session");
        any = true;
    }
    return any;
}

static void loaded(struct core *c, struct saving *x, int state)
{
    struct named *n = named_of(c, x);
    const struct store_head *h = &x->t->head;

    BUG_ON(n == NULL || n->loaded);
    n->moving = false;
    if (state < 0) {
        core_say(c, 4, "session %s: not restored: %s", n->name, x->t->why);
        core_named_unread(c, n, code_of(state, true), x->t->why);
        return;
    }
    if (x->no_room && refuse_restores(c, x, n) && n->wait == NULL) {
        return; /* it stays in its file */
    }
    n->ids = x->t->ids;
    n->messages = (struct job_text){x->t->messages, h->messages_bytes};
    n->tools = (struct job_text){x->t->tools, h->tools_bytes};
    x->t->ids = x->t->messages = x->t->tools = NULL;
    if (h->messages_bytes == 0) {
        free(n->messages.p);
        n->messages.p = NULL;
    }
    if (h->tools_bytes == 0) {
        free(n->tools.p);
        n->tools.p = NULL;
    }
    n->n_ids = (int)h->n_ids;
    n->n_committed = (int)h->n_committed;
    n->n_open = (int)h->n_open;
    n->pinned = (h->flags & STORE_PINNED) != 0;
    n->loaded = true;
    enter_index(c, x, n);
    core_say(c, 6, "session %s: %d tokens restored", n->name,
             x->no_room ? 0 : n->n_committed);
    core_named_next(c, n);
}

void core_see_saves(struct core *c, const struct core_owner *o,
                    int sum[MODEL_N_GROUPS])
{
    for (const struct saving *x = c->saving; x != NULL; x = x->next) {
        if (!core_is_of(o, x->uid, x->tenant)) {
            continue;
        }
        core_see_pin(c, x->pin, sum);
        core_see_pin(c, x->open_pin, sum);
        core_see(c, MODEL_SLIDING, x->open.page, x->open.n,
                 &sum[MODEL_SLIDING]);
        for (int g = 0; x->into != NULL && g < MODEL_N_GROUPS; g++) {
            core_see(c, (enum model_group)g, x->into->group[g].page,
                     x->into->group[g].n, &sum[g]);
        }
    }
}

/* ---- tending ------------------------------------------------------------- */

static bool export_some(struct core *c, struct saving *x)
{
    size_t bytes = 0, n;

    do {
        n = export(c, x);
        bytes += n;
    } while (n > 0 && bytes < CHUNKS_A_STEP * c->conf.store_chunk);
    return bytes > 0;
}

/* running: the thread has not ended yet. The first chunk is not waited for: a
 * disk that is slower than the steps costs them nothing. */
static bool import_some(struct core *c, struct saving *x, bool running)
{
    uint64_t end =
        core_now_us(c) + (uint64_t)c->conf.step_target_ms * 1000 / LOAD_SHARE;
    bool moved = false;

    while (import(c, x, moved && running ? CHUNK_WAIT_MS : 0) > 0) {
        moved = true;
        if (core_now_us(c) >= end) {
            break;
        }
    }
    return moved;
}

bool core_tend(struct core *c)
{
    struct saving *x = c->saving;
    bool moved = false;
    int state;

    if (x == NULL || c->in_step) {
        return false;
    }
    if (!x->started) {
        x->started = moved = true;
        store_start(c->store, x->t);
    }
    state = atomic_load(&x->t->state);
    if (x->t->load ? import_some(c, x, state == 0) : export_some(c, x)) {
        moved = true;
    }
    if (state == 0 || (x->t->load && mbox_count(x->t->chunk) > 0)) {
        return moved;
    }
    c->saving = x->next;
    if (x->t->load) {
        loaded(c, x, state);
    } else {
        saved(c, x, state);
    }
    saving_destroy(c, x);
    return true;
}

/* Whether a restart would find something else: a pinned session as it was, or
 * a pin that was taken back. */
static bool is_stale(const struct named *n)
{
    return n->loaded && n->n_ids > 0 &&
           (n->pinned || n->n_saving > 0 ? n->changed
                                         : n->file_bytes > 0 && n->file_pinned);
}

int core_unsaved(const struct core *c)
{
    int sum = 0;

    for (const struct named *n = c->named.first; n != NULL; n = n->next) {
        sum += n->pinned && (is_stale(n) || n->n_saving > 0);
    }
    return sum;
}

void core_save_pinned(struct core *c)
{
    for (struct named *n = c->named.first; n != NULL; n = n->next) {
        if (is_stale(n)) {
            core_save(c, n, NULL);
        }
    }
}

void core_save_last(struct core *c)
{
    core_save_pinned(c);
    while (c->saving != NULL) {
        if (!core_tend(c)) {
            store_wait(c->store);
        }
    }
}

static void on_found(void *ctx, uint32_t uid, const char *tenant,
                     const char *name, uint64_t bytes,
                     const struct store_head *head)
{
    struct core *c = ctx;
    struct named *n = named_found(&c->named, uid, tenant, name);

    n->salt = core_salt(c, uid, tenant);
    n->loaded = false;
    n->file_bytes = bytes;
    n->used_us = core_now_us(c);
    n->n_ids = head != NULL ? (int)head->n_ids : 0;
    n->pinned = head != NULL && (head->flags & STORE_PINNED) != 0;
    n->file_pinned = n->pinned;
}

void core_open_store(struct core *c)
{
    struct store_conf sc = {
        .dir = c->conf.session_dir,
        .floor = c->conf.session_disk_floor,
        .fingerprint = c->info->fingerprint,
        .page_bytes = {model_page_bytes(c->conf.model, MODEL_FULL),
                       model_page_bytes(c->conf.model, MODEL_SLIDING)},
        .aux_bytes = model_aux_bytes(c->conf.model),
        .chunk_bytes = c->conf.store_chunk,
        .wake = c->conf.wake,
        .ctx = c->conf.ctx,
    };
    int r;

    if (c->conf.store_chunk == 0) {
        c->conf.store_chunk = sc.chunk_bytes = STORE_CHUNK_BYTES;
    }
    if (c->conf.session_dir == NULL || *c->conf.session_dir == '\0') {
        return;
    }
    kernels_of(c, sc.kernels, sizeof(sc.kernels));
    r = store_create(&c->store, &sc);
    if (r < 0) {
        core_say(c, 4, "%s: %s: sessions are not saved", c->conf.session_dir,
                 r == -EBUSY ? "another daemon uses it" : strerror(-r));
        return;
    }
    store_scan(c->store, on_found, c);
}

void core_close_store(struct core *c)
{
    struct saving *x;

    if (c->saving != NULL && c->saving->started) {
        mbox_close(c->saving->t->chunk);
    }
    store_destroy(c->store);
    c->store = NULL;
    while ((x = c->saving) != NULL) {
        c->saving = x->next;
        if (x->job != NULL) {
            uint64_t id = x->job->id;

            job_destroy(x->job);
            ticket_close(c->conf.tickets, id);
        }
        saving_destroy(c, x);
    }
}
