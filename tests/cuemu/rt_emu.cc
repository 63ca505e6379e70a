/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kernels/cuda/rt.h over the emulator: device memory is host memory that cuemu
 * knows, a graph is the list of what was launched while it was recorded. Every
 * stream is as late as a device may be: what is queued there runs when somebody
 * waits for it, and no sooner, so that memory which is used again, or read, too
 * early holds the wrong bytes.
 * STEPD_CUEMU in the environment asks for a schedule, as in "policy=2 cp=1
 * seed=3", or a device of another size: "mem=256" MiB, of which others hold
 * "held=100"; "broken=1" has no pinned memory, "graphs=3" none for a
 * fourth graph, "running=3" none to run one beside three.
 * STEPD_CUEMU_RANKS="1/3": it is the second of three devices (the others are
 * made up by fake_nccl.c).
 */

#include "kernels/cuda/nccl.h"
#include "kernels/cuda/rt.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "tests/cuemu/cuemu_load.h"
#include "tests/cuemu/cuemu_priv.h"

struct rt_event {
    uint64_t recorded, done; /* times */
    int stream;              /* of the last time */
};
/* One of a stream: a call, or an event that is recorded or waited for. */
struct work {
    std::function<void(void)> call;
    rt_event *e;
    uint64_t ticket;
    bool waits;
    size_t to_device; /* bytes that leave the host */
    bool launch;      /* a kernel of RT_LOAD */
};
struct rt {
    bool capturing, ahead; /* ahead: copies run as early as they may */
    std::vector<std::function<void(void)>> recorded;
    std::deque<work> queue[RT_N_STREAMS];
};

/* For tests/daemon/test_stream.c, which finds it by name. */
struct cuemu_load cuemu_load_stat;
extern "C" __attribute__((visibility("default"))) struct cuemu_load *
cuemu_load_stats(void)
{
    return &cuemu_load_stat;
}

/* Whether a copy is queued that need not wait for what RT_LOAD does now. */
static bool copy_beside(const struct rt *rt)
{
    for (const work &w : rt->queue[RT_COPY]) {
        if (w.waits || w.to_device > 0) {
            return !w.waits;
        }
    }
    return false;
}

static void run_next(struct rt *rt, int s)
{
    work w = rt->queue[s].front();

    rt->queue[s].pop_front();
    if (w.waits) {
        while (w.e->done < w.ticket) {
            run_next(rt, w.e->stream);
        }
    } else if (w.e != nullptr) {
        w.e->done = w.ticket;
    } else {
        w.call();
        cuemu_load_stat.in_flight -= w.to_device;
        cuemu_load_stat.packs += w.launch;
        cuemu_load_stat.overlapped += w.launch && copy_beside(rt);
    }
}

static void run_all(struct rt *rt)
{
    for (int s = 0; s < RT_N_STREAMS; s++) {
        while (!rt->queue[s].empty()) {
            run_next(rt, s);
        }
    }
}

static void push(struct rt *rt, int s, const work &w)
{
    rt->queue[s].push_back(w);
    while (rt->ahead && s == RT_COPY && !rt->queue[s].empty()) {
        run_next(rt, s);
    }
}
struct rt_graph {
    std::vector<std::function<void(void)>> calls;
    std::shared_ptr<int> running; /* launched and not through yet */
};

static int submit(struct rt *rt, enum rt_stream s,
                  std::function<void(void)> call, size_t to_device = 0,
                  bool launch = false);

static int option(const char *name, int fallback)
{
    const char *env = getenv("STEPD_CUEMU");
    const char *at = env != nullptr ? strstr(env, name) : nullptr;

    return at != nullptr ? atoi(at + strlen(name)) : fallback;
}

int rt_open(struct rt **ret, int device, char *why, size_t n)
{
    (void)device;
    if (option("absent=", 0) != 0) {
        snprintf(why, n, "the emulator was told to have no device");
        return -ENODEV;
    }
    cuemu_opt.ftz = getenv("STEPD_CUEMU_FTZ") != nullptr;
    cuemu_opt.policy = option("policy=", cuemu_opt.policy);
    cuemu_opt.cp = option("cp=", cuemu_opt.cp);
    cuemu_opt.seed = (uint64_t)option("seed=", (int)cuemu_opt.seed);
    *ret = new (std::nothrow) struct rt();
    if (*ret == nullptr) {
        return -ENOMEM;
    }
    (*ret)->ahead = option("ahead=", 0) != 0;
    return 0;
}

/* Where kernels did what they must not, nothing that uses them passes. */
void rt_close(struct rt *rt)
{
    if (getenv("STEPD_CUEMU_VERBOSE") != nullptr) {
        printf("cuemu: %s, %llu launches, %llu threads, %llu mma, %llu "
               "cp.async, %llu reports\n",
               cuemu_race ? "with access checks" : "plain",
               (unsigned long long)cuemu_stat.launches,
               (unsigned long long)cuemu_stat.threads,
               (unsigned long long)cuemu_stat.mma,
               (unsigned long long)cuemu_stat.cp_async,
               (unsigned long long)cuemu_stat.errors);
        if (cuemu_race) {
            cuemu_report_access();
        }
    }
    if (cuemu_stat.errors != 0) {
        fprintf(stderr, "cuemu: %llu reports\n",
                (unsigned long long)cuemu_stat.errors);
        abort();
    }
    delete rt;
}

const char *rt_error(const struct rt *rt)
{
    (void)rt;
    return "the emulator failed";
}

/* Where ranks but the first say that they met. */
static const struct nccl_id meeting = {"the emulator's"};

int rt_info(struct rt *rt, struct rt_info *ret)
{
    const char *ranks = getenv("STEPD_CUEMU_RANKS");

    (void)rt;
    memset(ret, 0, sizeof(*ret));
    snprintf(ret->name, sizeof(ret->name), "emulated, policy %d, cp %d",
             cuemu_opt.policy, cuemu_opt.cp);
    ret->capability = 80;
    ret->n_sm = 4;
    ret->mem_total = (size_t)option("mem=", 2048) << 20;
    ret->mem_free = ret->mem_total - ((size_t)option("held=", 0) << 20);
    ret->smem_block = cuemu_opt.smem_limit;
    ret->n_ranks = 1;
    if (ranks != nullptr) {
        sscanf(ranks, "%d/%d", &ret->rank, &ret->n_ranks);
    }
    ret->group = ret->rank != 0 ? &meeting : nullptr;
    return 0;
}

/* As a device says in a capture that anything else would break. */
static bool refused(const struct rt *rt, const char *what)
{
    if (rt->capturing) {
        fprintf(stderr, "cuemu: %s inside of a capture\n", what);
        cuemu_stat.errors++;
    }
    return rt->capturing;
}

int rt_alloc(struct rt *rt, size_t n, void **ret)
{
    void *p = refused(rt, "an allocation") ? nullptr : cuemu_malloc(n);

    cuemu_load_stat.live += p != nullptr;
    if (p == nullptr) {
        return -ENOMEM;
    }
    memset(p, 0xff, n); /* as a device: whatever; here NaN */
    *ret = p;
    return 0;
}

void rt_free(struct rt *rt, void *p)
{
    (void)refused(rt, "cudaFree");
    run_all(rt); /* as cudaFree */
    if (p != nullptr) {
        cuemu_load_stat.live--;
        cuemu_free(p);
    }
}

int rt_host_alloc(struct rt *rt, size_t n, void **ret)
{
    (void)rt;
    if (option("broken=", 0) != 0) {
        return -EIO;
    }
    *ret = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
    cuemu_load_stat.live += *ret != nullptr;
    return *ret == nullptr ? -ENOMEM : 0;
}

void rt_host_free(struct rt *rt, void *p)
{
    run_all(rt); /* as cudaFreeHost */
    cuemu_load_stat.live -= p != nullptr;
    free(p);
}

/* Runs a call, or records it. */
static int submit(struct rt *rt, enum rt_stream s,
                  std::function<void(void)> call, size_t to_device, bool launch)
{
    if (s == RT_MAIN && rt->capturing) {
        rt->recorded.push_back(call);
    } else {
        push(rt, s, {call, nullptr, 0, false, to_device, launch});
    }
    return 0;
}

int rt_copy(struct rt *rt, enum rt_stream s, enum rt_copy kind, void *to,
            const void *from, size_t n)
{
    size_t leaves = kind == RT_TO_DEVICE && s != RT_MAIN ? n : 0;
    struct cuemu_load *l = &cuemu_load_stat;

    l->copies += leaves > 0;
    l->uploads += s == RT_MAIN && kind == RT_TO_DEVICE;
    l->downloads += s == RT_MAIN && kind == RT_TO_HOST;
    l->bytes += leaves;
    l->in_flight += leaves;
    l->max_in_flight = std::max(l->max_in_flight, l->in_flight);
    if (kind != RT_ON_DEVICE && s == RT_MAIN && refused(rt, "a copy")) {
        return -EINVAL; /* the host writes that memory again meanwhile */
    }
    return submit(
        rt, s, [=] { memmove(to, from, n); }, leaves);
}

int rt_fill(struct rt *rt, enum rt_stream s, void *to, int byte, size_t n)
{
    return submit(rt, s, [=] { memset(to, byte, n); });
}

int rt_prepare(struct rt *rt, const void *fn, size_t smem)
{
    (void)fn;
    return refused(rt, "a kernel is loaded") || smem > cuemu_opt.smem_limit
               ? -EINVAL
               : 0;
}

int rt_launch(struct rt *rt, enum rt_stream s, const void *fn,
              struct rt_grid grid, unsigned threads, size_t smem,
              const void *args, size_t n)
{
    std::vector<char> copy((const char *)args, (const char *)args + n);

    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 ||
        threads > 1024 || grid.y > 65535 || grid.z > 65535 || n > 4096) {
        fprintf(stderr, "cuemu: a launch that a device would refuse\n");
        return -EINVAL;
    }
    return submit(
        rt, s,
        [=] {
            cuemu_launch({grid.x, grid.y, grid.z}, {threads, 1, 1}, smem,
                         (void (*)(const void *))fn, copy.data(), n);
        },
        0, s == RT_LOAD);
}

int rt_call(struct rt *rt, enum rt_stream s,
            int (*fn)(const void *args, void *stream), const void *args,
            size_t n)
{
    std::vector<char> copy((const char *)args, (const char *)args + n);

    if (s == RT_MAIN && rt->capturing) {
        return submit(rt, s, [=] { (void)fn(copy.data(), nullptr); });
    }
    rt_sync(rt, s); /* its answer is wanted now */
    return fn(copy.data(), nullptr);
}

int rt_sync(struct rt *rt, enum rt_stream s)
{
    if (s == RT_MAIN && refused(rt, "a wait")) {
        return -EINVAL;
    }
    while (!rt->queue[s].empty()) {
        run_next(rt, s);
    }
    return 0;
}

int rt_event_new(struct rt *rt, struct rt_event **ret)
{
    (void)rt;
    *ret = new (std::nothrow) struct rt_event();
    return *ret == nullptr ? -ENOMEM : 0;
}

void rt_event_free(struct rt *rt, struct rt_event *e)
{
    run_all(rt);
    delete e;
}

int rt_event_record(struct rt *rt, struct rt_event *e, enum rt_stream s)
{
    (void)refused(rt, "an event");
    e->recorded++;
    e->stream = s;
    push(rt, s, {nullptr, e, e->recorded, false, 0, false});
    return 0;
}

int rt_event_wait(struct rt *rt, struct rt_event *e, enum rt_stream s)
{
    push(rt, s, {nullptr, e, e->recorded, true, 0, false});
    return 0;
}

int rt_event_sync(struct rt *rt, struct rt_event *e)
{
    while (e->done < e->recorded) {
        run_next(rt, e->stream);
    }
    return e->recorded > 0 ? 0 : -EINVAL;
}

int rt_capture_begin(struct rt *rt)
{
    if (rt->capturing) {
        return -EINVAL;
    }
    rt->capturing = true;
    rt->recorded.clear();
    return 0;
}

int rt_capture_end(struct rt *rt, struct rt_graph **ret)
{
    struct rt_graph *g;

    rt->capturing = false;
    if (cuemu_load_stat.kept >= option("graphs=", INT_MAX)) {
        return -ENOMEM;
    }
    g = new (std::nothrow) struct rt_graph();
    if (g == nullptr) {
        return -ENOMEM;
    }
    g->running = std::make_shared<int>(0);
    cuemu_load_stat.kept++;
    cuemu_load_stat.captured++;
    g->calls.swap(rt->recorded);
    *ret = g;
    return 0;
}

int rt_graph_launch(struct rt *rt, struct rt_graph *g)
{
    std::shared_ptr<int> running = g->running;

    if (cuemu_load_stat.kept > option("running=", INT_MAX)) {
        return -ENOMEM;
    }
    cuemu_load_stat.graphs++;
    for (auto &call : g->calls) {
        submit(rt, RT_MAIN, call);
    }
    ++*running;
    return submit(rt, RT_MAIN, [=] { --*running; });
}

void rt_graph_free(struct rt *rt, struct rt_graph *g)
{
    (void)rt;
    if (g != nullptr && *g->running > 0) {
        fprintf(stderr, "cuemu: a graph is freed that may still run\n");
        cuemu_stat.errors++;
    }
    cuemu_load_stat.kept -= g != nullptr;
    delete g;
}
