/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * cuemu, who runs: a block's threads are fibers on stacks of their own; a
 * scheduler takes one that is ready and runs it to its next barrier or warp
 * operation. Blocks run one after another. Shared memory is one arena, filled
 * with 0xff (NaN) when a block begins, dynamic part first, then each static in
 * the order of first use, with red zones between.
 *
 * A warp operation ends when the last lane of its mask has come; found by mask,
 * so that disjoint masks may be in flight together.
 */

#include "tests/cuemu/cuemu_priv.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <sys/mman.h>
#include <xmmintrin.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define ASAN 1
#else
#define ASAN 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)0)
#endif

cuemu_opts cuemu_opt = {0, CUEMU_CP_AT_WAIT, 0, false, false, 101376};
cuemu_stats cuemu_stat;
machine cuemu_m;

static machine &m = cuemu_m;
alignas(128) static char arena[ARENA];
static uint64_t rng;

static uint32_t rnd(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 11);
}

template <class T> static void shuffle(std::vector<T> &v)
{
    for (size_t i = v.size(); i > 1; i--) {
        std::swap(v[i - 1], v[rnd() % i]);
    }
}

/* ---- fibers ---- */

extern "C" void cuemu_switch(void **save, void *to);
#if defined(__x86_64__)
__asm__(".text\n"
        ".globl cuemu_switch\n"
        ".hidden cuemu_switch\n"
        ".type cuemu_switch,@function\n"
        "cuemu_switch:\n"
        " pushq %rbp\n pushq %rbx\n pushq %r12\n"
        " pushq %r13\n pushq %r14\n pushq %r15\n"
        " movq %rsp,(%rdi)\n movq %rsi,%rsp\n"
        " popq %r15\n popq %r14\n popq %r13\n"
        " popq %r12\n popq %rbx\n popq %rbp\n popq %rcx\n jmp *%rcx\n"
        ".size cuemu_switch,.-cuemu_switch\n");
#else
#error "cuemu_switch is written for x86-64 only"
#endif

static void *sched_sp;
#if ASAN
static void *sched_fake;
static const void *sched_bottom;
static size_t sched_size;
#endif

static void to_sched(void)
{
    thr *me = m.self;

#if ASAN
    __sanitizer_start_switch_fiber(me->state == THR_DONE ? nullptr : &me->fake,
                                   sched_bottom, sched_size);
#endif
    cuemu_switch(&me->sp, sched_sp);
#if ASAN
    __sanitizer_finish_switch_fiber(me->fake, &sched_bottom, &sched_size);
#endif
}

static void thread_main(void)
{
#if ASAN
    __sanitizer_finish_switch_fiber(nullptr, &sched_bottom, &sched_size);
#endif
    m.fn(m.arg);
    m.self->state = THR_DONE;
    m.n_done++;
    to_sched();
    abort();
}

static void run(thr *t)
{
    m.self = t;
    cuemu_stat.switches++;
#if ASAN
    __sanitizer_start_switch_fiber(&sched_fake, t->stack, THR_STACK);
#endif
    cuemu_switch(&sched_sp, t->sp);
#if ASAN
    __sanitizer_finish_switch_fiber(sched_fake, nullptr, nullptr);
#endif
}

cuemu_idx cuemu_tid(void)
{
    return m.self->tid;
}
cuemu_idx cuemu_bid(void)
{
    return m.bid;
}
cuemu_idx cuemu_bdim(void)
{
    return m.bdim;
}
cuemu_idx cuemu_gdim(void)
{
    return m.gdim;
}
int cuemu_lane(void)
{
    return m.self->lane;
}

/* ---- shared memory ---- */

void *cuemu_shared(const void *key, size_t n)
{
    size_t at = m.arena_top;

    for (auto &s : m.statics) {
        if (s.first == key) {
            return &m.arena[s.second.first];
        }
    }
    m.statics.push_back({key, {at, n}});
    ASAN_UNPOISON_MEMORY_REGION(&m.arena[at], n);
    m.arena_top = (at + n + RED_ZONE + 127) / 128 * 128;
    if (m.arena_top > ARENA) {
        fprintf(stderr, "cuemu: the arena of shared memory is full\n");
        abort();
    }
    n = m.dyn_bytes;
    for (auto &s : m.statics) {
        n += s.second.second;
    }
    if (n > cuemu_opt.smem_limit) {
        cuemu_misuse("more shared memory than the smallest target has",
                     m.self->pc);
    }
    return &m.arena[at];
}

void *cuemu_dyn_shared(void)
{
    return &m.arena[0];
}

/* ---- synchronisation ---- */

void cuemu_syncthreads(int line, const void *pc)
{
    m.self->pc = pc;
    m.self->line = line;
    m.self->state = THR_AT_BARRIER;
    m.n_waiting++;
    cuemu_stat.barriers++;
    to_sched();
}

/* Two BF16 of a register, as the two floats that they are. */
static uint64_t pair(uint32_t w)
{
    return (uint64_t)(w & 0xffff0000u) << 32 | (uint32_t)(w << 16);
}

/* m16n8k16, row.col (PTX fragment tables): g = lane / 4, t = lane % 4. A
 * register r: row g + 8 (r & 1), k = 2 t + {0, 1} + 8 (r >> 1); B register r:
 * k = 2 t + {0, 1} + 8 r, n = g; C register i: row g + 8 (i >> 1), column
 * 2 t + (i & 1). Of the whole warp at once, a row of C in a register: lane by
 * lane it was half of all the time. Each sum is over k in order, on top of C. */
static inline __attribute__((always_inline)) void multiply_any(cuemu_slot *s)
{
    typedef float row __attribute__((vector_size(32)));
    alignas(64) float a[16][16], b[16][8];
    row c[16];

    for (int l = 0; l < 32; l++) {
        const uint32_t *w = s[l].w;
        int g = l / 4, t = l % 4 * 2;

        for (int r = 0; r < 4; r++) {
            uint64_t x = pair(w[r]);

            memcpy(&a[g + 8 * (r & 1)][t + 8 * (r >> 1)], &x, 8);
        }
        for (int r = 0; r < 2; r++) {
            uint64_t x = pair(w[4 + r]);

            memcpy(&b[t + 8 * r][g], &x, 4);
            memcpy(&b[t + 8 * r + 1][g], (char *)&x + 4, 4);
        }
        memcpy((float *)&c[g] + t, &w[CUEMU_MMA_C], 8);
        memcpy((float *)&c[g + 8] + t, &w[CUEMU_MMA_C + 2], 8);
    }
    for (int i = 0; i < 16; i++) {
        row sum = c[i];

        for (int k = 0; k < 16; k++) {
            sum += a[i][k] * *(const row *)b[k];
        }
        c[i] = sum;
    }
    for (int l = 0; l < 32; l++) {
        int g = l / 4, t = l % 4 * 2;

        memcpy(&s[l].w[CUEMU_MMA_C], (float *)&c[g] + t, 8);
        memcpy(&s[l].w[CUEMU_MMA_C + 2], (float *)&c[g + 8] + t, 8);
    }
}

__attribute__((target("avx2"))) static void multiply_avx2(cuemu_slot *s)
{
    multiply_any(s);
}

static void multiply(cuemu_slot *s)
{
    static const bool avx2 = __builtin_cpu_supports("avx2");

    avx2 ? multiply_avx2(s) : multiply_any(s);
}

/* Mostly 4 bytes, of which memcpy makes a call. */
static inline void put(cuemu_slot &s, const void *in, size_t n)
{
    if (n == 4) {
        memcpy(s.w, in, 4);
    } else {
        memcpy(s.w, in, n);
    }
}

const cuemu_slot *cuemu_collect(cuemu_op op, uint32_t mask, const void *in,
                                size_t n, int line, const void *pc)
{
    thr *self = m.self;
    warp &w = m.warps[(size_t)self->warp];
    collective *c = nullptr;
    int live = std::min(32, m.n_threads - self->warp * 32), parity;

    cuemu_stat.collectives++;
    cuemu_stat.mma += op == CUEMU_MMA && self->lane == 0;
    cuemu_stat.ldsm += op == CUEMU_LDSM && self->lane == 0;
    if (!((mask >> self->lane) & 1)) {
        check_report(pc, "a lane calls a warp operation whose mask leaves it "
                         "out");
    }
    if (live < 32) {
        mask &= (1u << live) - 1;
    }
    for (auto &x : w.meet) {
        if (x->mask == mask) {
            c = x.get();
            break;
        }
    }
    if (c == nullptr) {
        w.meet.emplace_back(new collective());
        c = w.meet.back().get();
        c->mask = mask;
    }
    if (c->arrived == 0) {
        c->op = op;
        c->pc = pc;
        c->line = line;
    } else if (c->op != op || c->line != line) {
        check_report(pc, "lanes of one warp meet in different warp operations, "
                         "the other at " +
                             check_where(c->pc));
    }
    parity = c->parity;
    put(c->buf[parity][self->lane], in, n);
    c->arrived |= 1u << self->lane;
    self->pc = pc;
    if (c->arrived == mask) {
        if (op == CUEMU_MMA) {
            multiply(c->buf[parity]);
        }
        c->arrived = 0;
        c->parity ^= 1;
        w.epoch += op == CUEMU_SYNCWARP;
        for (int l = 0; l < live; l++) {
            if ((mask >> l) & 1) {
                m.thread[(size_t)(self->warp * 32 + l)].state = THR_READY;
            }
        }
    } else {
        self->state = THR_AT_COLLECTIVE;
        to_sched();
    }
    return c->buf[parity];
}

/* ---- cp.async ---- */

static void copy_in(char *dst, const char *src, size_t n, bool live)
{
    if (live) {
        memcpy(dst, src, n);
    } else {
        memset(dst, 0, n);
    }
}

void cuemu_cp_async(void *dst, const void *src, size_t n, bool live,
                    const void *pc)
{
    thr *self = m.self;
    char *d = (char *)dst;
    const char *s = (const char *)src;
    bool late = cuemu_opt.cp == CUEMU_CP_AT_WAIT ||
                (cuemu_opt.cp == CUEMU_CP_RANDOM && (rnd() & 1));

    cuemu_stat.cp_async++;
    if ((((uintptr_t)d | (uintptr_t)s) & (n - 1)) != 0) {
        check_report(pc, "an address of cp.async is not aligned");
    }
    if (live) {
        cuemu_access(s, n, false, false, pc);
    }
    cuemu_access(d, n, true, false, pc);
    if (d < m.arena || d >= m.arena + ARENA) {
        check_report(pc, "cp.async into what is no shared memory");
        return;
    }
#if ASAN
    if (live) { /* touch both ends, so that ASan looks */
        volatile char see = *(volatile const char *)s;

        see = ((volatile const char *)s)[n - 1];
        (void)see;
    }
    *(volatile char *)d = *(volatile char *)d;
    ((volatile char *)d)[n - 1] = ((volatile char *)d)[n - 1];
#endif
    if (!late) {
        copy_in(d, s, n, live);
    }
    check_cp_issue(d, n, pc);
    self->cp.push_back({d, s, n, live, self->cp_group, pc});
}

void cuemu_cp_commit(void)
{
    m.self->cp_group++;
}

void cuemu_cp_wait(int n)
{
    std::vector<pending> &v = m.self->cp;
    size_t k = 0;

    for (; k < v.size() && v[k].group < m.self->cp_group - n; k++) {
        copy_in(v[k].dst, v[k].src, v[k].n, v[k].live);
        check_cp_land(v[k].dst, v[k].n, v[k].pc);
    }
    v.erase(v.begin(), v.begin() + (long)k);
}

/* ---- a block ---- */

static void block_begin(size_t smem)
{
    size_t clear;

    m.epoch++;
    m.statics.clear();
    m.dyn_bytes = smem;
    m.arena_top = smem == 0 ? 128 : (smem + RED_ZONE + 127) / 128 * 128;
    clear = std::min((size_t)ARENA, m.arena_top + (64 << 10));
    ASAN_UNPOISON_MEMORY_REGION(m.arena, ARENA);
    memset(m.arena, 0xff, clear);
    ASAN_POISON_MEMORY_REGION(m.arena, ARENA);
    ASAN_UNPOISON_MEMORY_REGION(m.arena, smem);
    check_block(clear);
    m.n_done = m.n_waiting = 0;
    cuemu_stat.blocks++;
    cuemu_stat.threads += (uint64_t)m.n_threads;
    for (warp &w : m.warps) {
        w.meet.clear();
        w.epoch = 1;
    }
    for (int i = 0; i < m.n_threads; i++) {
        thr &t = m.thread[(size_t)i];
        unsigned u = (unsigned)i;
        /* Tops a stack apart would all fall into the same sets of a cache. */
        void **sp = (void **)(t.stack + THR_STACK - 64 - i * 448 % (24 << 10));

        t.id = i;
        t.warp = i / 32;
        t.lane = i % 32;
        t.tid = {u % m.bdim.x, u / m.bdim.x % m.bdim.y,
                 u / (m.bdim.x * m.bdim.y)};
        t.state = THR_READY;
        t.fence = 0;
        t.fake = nullptr;
        t.cp.clear();
        t.cp_group = 0;
        if (cuemu_race) {
            t.visits.clear();
        }
        ASAN_UNPOISON_MEMORY_REGION(t.stack, THR_STACK);
        *--sp = nullptr;
        *--sp = (void *)thread_main;
        for (int k = 0; k < 6; k++) {
            *--sp = nullptr;
        }
        t.sp = sp;
    }
}

/* Runs thread indices [lo, hi) of order until none of them is ready. */
static bool run_ready(const std::vector<int> &order, int lo, int hi)
{
    bool any = false, again = true;

    while (again) {
        again = false;
        for (int i : order) {
            thr &t = m.thread[(size_t)i];

            if (i >= lo && i < hi && t.state == THR_READY) {
                run(&t);
                again = any = true;
            }
        }
    }
    return any;
}

static bool one_pass(std::vector<int> &order)
{
    int n_warps = (int)m.warps.size();
    std::vector<int> by_warp((size_t)n_warps);
    bool any = false;

    if (cuemu_opt.policy == 2) {
        shuffle(order);
        for (int i : order) {
            if (m.thread[(size_t)i].state == THR_READY) {
                run(&m.thread[(size_t)i]);
                any = true;
            }
        }
        return any;
    }
    for (int i = 0; i < n_warps; i++) {
        by_warp[(size_t)i] = cuemu_opt.policy == 1 ? n_warps - 1 - i : i;
    }
    if (cuemu_opt.policy == 3) {
        shuffle(by_warp);
    }
    for (int w : by_warp) {
        int lo = w * 32, hi = std::min(m.n_threads, lo + 32);
        std::vector<int> lanes;

        for (int i = lo; i < hi; i++) {
            lanes.push_back(cuemu_opt.policy == 1 ? lo + hi - 1 - i : i);
        }
        if (cuemu_opt.policy == 3) {
            shuffle(lanes);
        }
        any |= run_ready(lanes, lo, hi);
    }
    return any;
}

/* Everybody alive waits at a barrier: let them go, and say what is wrong. */
static void release_barrier(void)
{
    int line = 0;

    for (int i = 0; i < m.n_threads; i++) {
        thr &t = m.thread[(size_t)i];

        if (t.state != THR_AT_BARRIER) {
            continue;
        }
        if (m.n_done > 0 && line == 0) {
            check_report(t.pc, "a barrier that some threads have left behind "
                               "by returning");
        }
        if (line != 0 && line != t.line) {
            check_report(t.pc, "threads of one block meet at different "
                               "barriers");
        }
        line = t.line;
        t.state = THR_READY;
    }
    m.n_waiting = 0;
    m.epoch++;
    for (warp &w : m.warps) {
        w.epoch++;
    }
}

static void report_deadlock(void)
{
    for (int i = 0; i < m.n_threads; i++) {
        thr &t = m.thread[(size_t)i];

        if (t.state != THR_DONE) {
            check_report(t.pc, t.state == THR_AT_BARRIER
                                   ? "deadlock: waits at a barrier"
                                   : "deadlock: waits in a warp operation");
        }
    }
}

static void run_block(size_t smem)
{
    std::vector<int> order((size_t)m.n_threads);

    block_begin(smem);
    for (int i = 0; i < m.n_threads; i++) {
        order[(size_t)i] = i;
    }
    for (;;) {
        bool any = one_pass(order);

        m.self = nullptr;
        if (m.n_done == m.n_threads) {
            break;
        }
        if (m.n_waiting > 0 && m.n_waiting + m.n_done == m.n_threads) {
            release_barrier();
        } else if (!any) {
            report_deadlock();
            break;
        }
    }
    check_block_end();
}

/* ---- a launch ---- */

static void prepare_threads(void)
{
    size_t have = m.thread.size();

    m.arena = arena;
    if (have < (size_t)m.n_threads) {
        m.thread.resize((size_t)m.n_threads);
        for (size_t i = have; i < m.thread.size(); i++) {
            void *p = mmap(nullptr, THR_STACK, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

            if (p == MAP_FAILED) {
                abort();
            }
            m.thread[i].stack = (char *)p;
        }
    }
    m.warps.clear();
    m.warps.resize(((size_t)m.n_threads + 31) / 32);
}

void cuemu_launch(cuemu_idx grid, cuemu_idx block, size_t smem,
                  void (*fn)(const void *), const void *arg, size_t n)
{
    std::vector<int> order(grid.x * grid.y * grid.z);
    unsigned csr = _mm_getcsr();

    m.n_threads = (int)(block.x * block.y * block.z);
    m.bdim = block;
    m.gdim = grid;
    m.fn = fn;
    m.arg = arg;
    m.n_arg = n;
    rng = cuemu_opt.seed * 0x9e3779b97f4a7c15ull + 88172645463325252ull;
    cuemu_stat.launches++;
    prepare_threads();
    for (size_t i = 0; i < order.size(); i++) {
        order[i] = (int)(cuemu_opt.policy == 1 ? order.size() - 1 - i : i);
    }
    if (cuemu_opt.policy >= 2) {
        shuffle(order);
    }
    check_launch();
    if (cuemu_opt.ftz) {
        _mm_setcsr(csr | 0x8040); /* flush subnormal results and inputs */
    }
    for (int b : order) {
        unsigned u = (unsigned)b;

        m.block = b;
        m.bid = {u % grid.x, u / grid.x % grid.y, u / (grid.x * grid.y)};
        run_block(smem);
    }
    _mm_setcsr(csr);
    m.self = nullptr;
}
