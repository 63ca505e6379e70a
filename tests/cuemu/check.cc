/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * cuemu, who may touch what. In the race build every access of a kernel comes
 * here, through the compiler's hooks (-fsanitize=thread without libtsan; they
 * are at the end) or from the emulator's own 16-byte accesses.
 *
 * The rule, per byte of shared memory and of writable buffers: two accesses by
 * different threads of a block in one barrier interval, one of them a write,
 * conflict unless both are in one warp with a __syncwarp between. Shuffles and
 * mma order nothing, as CUDA says. Atomics are exempt against each other.
 * Between blocks of a launch: what another block wrote may be read or
 * overwritten only if its thread fenced after the write and this block has
 * since seen an atomic of that block on the same word. A launch orders
 * everything.
 */

#include "tests/cuemu/cuemu_priv.h"
#include "tests/cuemu/cuemu_reads.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include <dlfcn.h>

bool cuemu_race = false;

static machine &m = cuemu_m;

/* ---- reports ---- */

std::string check_where(const void *pc)
{
    char cmd[1200], line[512] = "";
    FILE *f;
    Dl_info so;
    std::string s;

    if (dladdr(pc, &so) == 0) {
        return "?";
    }
    snprintf(cmd, sizeof(cmd), "addr2line -s -e %.1000s 0x%zx", so.dli_fname,
             (size_t)((const char *)pc - 1 - (const char *)so.dli_fbase));
    f = popen(cmd, "r");
    if (f != nullptr) {
        if (fgets(line, sizeof(line), f) == nullptr) {
            line[0] = '\0';
        }
        pclose(f);
    }
    s = line;
    s = s.substr(0, s.find('\n'));
    return s.substr(0, s.find(" ("));
}

static std::set<std::pair<const void *, std::string>> said;

void check_report(const void *pc, const std::string &what)
{
    cuemu_stat.errors++;
    if (cuemu_opt.silent || said.size() >= 12 ||
        !said.insert({pc, what.substr(0, 24)}).second) {
        return;
    }
    fprintf(stderr, "cuemu: %s at %s, block %u,%u,%u thread %d\n", what.c_str(),
            check_where(pc).c_str(), m.bid.x, m.bid.y, m.bid.z,
            m.self != nullptr ? m.self->id : -1);
}

void cuemu_misuse(const char *what, const void *pc)
{
    check_report(pc, what);
}

/* The first report of a kind at a place; later ones are only counted, because
 * looking up a source line is slow. */
static bool first_of(const void *pc, int kind)
{
    static std::set<std::pair<const void *, int>> seen;

    if (!cuemu_opt.silent && seen.insert({pc, kind}).second) {
        return true;
    }
    cuemu_stat.errors++;
    return false;
}

/* ---- what is known of a byte ---- */

struct cell {
    uint32_t w_epoch, w_warp_epoch, r_epoch, r_warp_epoch;
    int32_t w_block, r_block; /* + 1; 0: nobody in this launch */
    int16_t writer, reader;   /* writer -1: an atomic */
    uint8_t init, pending, more_lanes, more_warps;
    const void *w_pc, *r_pc;
    uint64_t w_time;
};

struct buffer {
    char *p;
    size_t n;
    bool writable;
    std::vector<cell> cells;
    std::vector<unsigned> reads; /* of each byte */
    cuemu_traffic t;
};

static std::map<char *, buffer> buffers;
static buffer *last_buffer;
static std::vector<cell> arena_cells;
static cuemu_traffic shared_traffic;
static uint64_t now;

static buffer *find(const char *p)
{
    if (last_buffer != nullptr && p >= last_buffer->p &&
        p < last_buffer->p + last_buffer->n) {
        return last_buffer;
    }
    auto i = buffers.upper_bound((char *)p);

    if (i == buffers.begin()) {
        return nullptr;
    }
    --i;
    if (p >= i->second.p + i->second.n) {
        return nullptr;
    }
    return last_buffer = &i->second;
}

void *cuemu_malloc(size_t n)
{
    void *p;
    buffer b = {};

    if (posix_memalign(&p, 256, n) != 0) {
        return nullptr;
    }
    b.p = (char *)p;
    b.n = n;
    b.writable = true;
    if (cuemu_race) {
        b.cells.resize(n);
        b.reads.resize(n);
    }
    buffers[b.p] = std::move(b);
    last_buffer = nullptr;
    return p;
}

void cuemu_free(void *p)
{
    buffers.erase((char *)p);
    last_buffer = nullptr;
    free(p);
}

void cuemu_writable(const void *p, bool yes)
{
    buffer *b = find((const char *)p);

    if (b != nullptr) {
        b->writable = yes;
    }
}

cuemu_traffic cuemu_traffic_of(const void *p)
{
    buffer *b = p != nullptr ? find((const char *)p) : nullptr;

    return b != nullptr ? b->t : shared_traffic;
}

void cuemu_traffic_reset(void)
{
    for (auto &b : buffers) {
        b.second.t = cuemu_traffic();
    }
    shared_traffic = cuemu_traffic();
}

extern "C" __attribute__((visibility("default"))) bool cuemu_reads_take(
    const void *p, size_t n, cuemu_reads *ret)
{
    buffer *b = find((const char *)p);
    size_t off = b != nullptr ? (size_t)((const char *)p - b->p) : 0;

    *ret = {0, ~0u, 0};
    if (!cuemu_race || b == nullptr || n > b->n - off) {
        return false;
    }
    for (size_t i = off; i < off + n; i++) {
        ret->bytes += b->reads[i];
        ret->least = std::min(ret->least, b->reads[i]);
        ret->most = std::max(ret->most, b->reads[i]);
        b->reads[i] = 0;
    }
    return true;
}

/* ---- blocks that publish to each other ---- */

typedef std::map<int, std::shared_ptr<std::vector<uint64_t>>> block_clocks;
static std::unordered_map<const void *, block_clocks> released;
static std::unordered_map<int, block_clocks> acquired;

void cuemu_threadfence(void)
{
    m.self->fence = ++now;
}

void cuemu_atomic_sync(const void *p)
{
    const char *at = (const char *)p;

    if (!cuemu_race || (at >= m.arena && at < m.arena + ARENA)) {
        return;
    }
    auto v = std::make_shared<std::vector<uint64_t>>((size_t)m.n_threads);

    for (size_t i = 0; i < v->size(); i++) {
        (*v)[i] = m.thread[i].fence;
    }
    for (auto &r : released[p]) {
        acquired[m.block][r.first] = r.second;
    }
    released[p][m.block] = v;
}

static bool published(int block, int writer, uint64_t time)
{
    auto a = acquired.find(m.block);

    if (a == acquired.end()) {
        return false;
    }
    auto v = a->second.find(block);

    return v != a->second.end() && (*v->second)[(size_t)writer] > time;
}

/* ---- one access to one byte ---- */

struct place {
    const void *pc;
    const char *what;
    size_t off;
    bool shared;
};

#define REPORT(pc_, ...)                                 \
    do {                                                 \
        if (first_of(pc_, __LINE__)) {                   \
            char text_[256];                             \
            snprintf(text_, sizeof(text_), __VA_ARGS__); \
            check_report(pc_, text_);                    \
        }                                                \
    } while (0)

static bool same_warp_before(int other, uint32_t warp_epoch)
{
    return m.thread[(size_t)other].warp == m.self->warp &&
           warp_epoch < m.warps[(size_t)m.self->warp].epoch;
}

/* Whether the last write, of this interval, is unordered with us. */
static bool races_with_write(const cell &c)
{
    return c.w_block == m.block + 1 && c.w_epoch == m.epoch &&
           c.writer != m.self->id && c.writer >= 0 &&
           !same_warp_before(c.writer, c.w_warp_epoch);
}

static void note_read(cell &c, const place &at)
{
    uint32_t e = m.warps[(size_t)m.self->warp].epoch;

    if (c.r_block != m.block + 1 || c.r_epoch != m.epoch) {
        c.r_block = m.block + 1;
        c.r_epoch = m.epoch;
        c.more_lanes = c.more_warps = 0;
    } else if (m.thread[(size_t)c.reader].warp != m.self->warp) {
        c.more_warps = 1;
        return;
    } else if (c.r_warp_epoch == e) {
        c.more_lanes |= c.reader != m.self->id;
        return;
    } else {
        c.more_lanes = 0;
    }
    c.reader = (int16_t)m.self->id;
    c.r_warp_epoch = e;
    c.r_pc = at.pc;
}

static bool races_with_read(const cell &c)
{
    if (c.r_block != m.block + 1 || c.r_epoch != m.epoch) {
        return false;
    }
    return c.more_warps || m.thread[(size_t)c.reader].warp != m.self->warp ||
           (c.r_warp_epoch == m.warps[(size_t)m.self->warp].epoch &&
            (c.reader != m.self->id || c.more_lanes));
}

static void note_write(cell &c, const place &at, bool atomic)
{
    c.writer = (int16_t)(atomic ? -1 : m.self->id);
    c.w_block = m.block + 1;
    c.w_epoch = m.epoch;
    c.w_warp_epoch = m.warps[(size_t)m.self->warp].epoch;
    c.w_pc = at.pc;
    c.w_time = ++now;
    c.init = 1;
}

static void touch(cell &c, bool write, bool atomic, const place &at)
{
    const char *verb = atomic ? "atomic" : write ? "write" : "read";

    if (c.pending) {
        REPORT(at.pc,
               "%s of %s+%zu while a cp.async into it is in flight, "
               "issued at %s",
               verb, at.what, at.off, check_where(c.w_pc).c_str());
        c.pending = 0;
    }
    if (at.shared && !write && !c.init) {
        REPORT(at.pc, "read of %s+%zu that nobody wrote", at.what, at.off);
        c.init = 1;
    }
    if (!atomic && c.w_block != 0 && c.w_block != m.block + 1 &&
        c.writer >= 0 && !published(c.w_block - 1, c.writer, c.w_time)) {
        REPORT(at.pc,
               "%s of %s+%zu written by block %d with no fence and "
               "atomic between, at %s",
               verb, at.what, at.off, c.w_block - 1,
               check_where(c.w_pc).c_str());
    }
    if (races_with_write(c)) {
        REPORT(at.pc, "race: %s of %s+%zu and the write by thread %d at %s",
               verb, at.what, at.off, c.writer, check_where(c.w_pc).c_str());
    }
    if (!write) {
        note_read(c, at);
        return;
    }
    if (!atomic && races_with_read(c)) {
        REPORT(at.pc, "race: write of %s+%zu and the read by thread %d at %s",
               at.what, at.off, c.reader, check_where(c.r_pc).c_str());
    }
    note_write(c, at, atomic);
}

/* ---- statistics: the lanes of one warp at one place, same visit ---- */

struct request {
    uint8_t count, n;
    bool shared, write;
    uintptr_t at[32];
};
struct request_key {
    const void *pc;
    uint32_t warp, visit;
    bool operator==(const request_key &k) const
    {
        return pc == k.pc && warp == k.warp && visit == k.visit;
    }
};
struct request_hash {
    size_t operator()(const request_key &k) const
    {
        return (size_t)k.pc * 31 + k.warp * 1009u + k.visit * 2654435761u;
    }
};
static std::unordered_map<request_key, request, request_hash> requests;
struct place_stats {
    cuemu_traffic t;
    bool shared, write;
    int n;
};
static std::map<const void *, place_stats> places;

/* Wavefronts of a shared access: the most words that any bank must serve. */
static uint64_t waves_of(const uintptr_t *a, int count, size_t n)
{
    uint64_t sum = 0;
    int per = n >= 16 ? 8 : n == 8 ? 16 : 32;

    for (int s = 0; s < count; s += per) {
        std::set<uintptr_t> words[32];
        size_t most = 0;

        for (int i = s; i < std::min(count, s + per); i++) {
            for (size_t b = 0; b < std::max<size_t>(n, 4); b += 4) {
                uintptr_t w = (a[i] + b) / 4;

                words[w & 31].insert(w);
            }
        }
        for (auto &x : words) {
            most = std::max(most, x.size());
        }
        sum += most;
    }
    return sum;
}

static void count_shared(const request &r, cuemu_traffic &t)
{
    std::set<uintptr_t> words;

    for (int i = 0; i < r.count; i++) {
        for (size_t b = 0; b < std::max<size_t>(r.n, 4); b += 4) {
            words.insert((r.at[i] + b) / 4);
        }
    }
    t.requests++;
    t.waves += waves_of(r.at, r.count, r.n);
    t.best += (words.size() + 31) / 32;
}

static void count_global(const request &r, cuemu_traffic &t)
{
    std::set<uintptr_t> sectors, bytes;

    for (int i = 0; i < r.count; i++) {
        for (uintptr_t s = r.at[i] / 32; s <= (r.at[i] + r.n - 1) / 32; s++) {
            sectors.insert(s);
        }
        bytes.insert(r.at[i]);
    }
    t.requests++;
    t.sectors += sectors.size();
    t.ideal += (bytes.size() * r.n + 31) / 32;
}

static void count_requests(void)
{
    for (auto &kv : requests) {
        request &r = kv.second;
        place_stats &at = places[kv.first.pc];
        buffer *b = r.shared ? nullptr : find((const char *)r.at[0]);

        at.shared = r.shared;
        at.write = r.write;
        at.n = r.n;
        if (r.shared) {
            count_shared(r, at.t);
            count_shared(r, shared_traffic);
        } else {
            count_global(r, at.t);
            if (b != nullptr) {
                count_global(r, b->t);
            }
        }
    }
    requests.clear();
}

static void note_request(const void *p, size_t n, bool write, bool shared,
                         const void *pc)
{
    uint32_t visit = m.self->visits[pc]++;

    /* Two blocks of a launch and 64 visits tell what there is to tell. */
    if (m.block > 1 || visit >= 64) {
        return;
    }
    request &r = requests[{pc, (uint32_t)m.self->warp, visit}];

    if (r.count < 32) {
        r.at[r.count++] = (uintptr_t)p;
    }
    r.n = (uint8_t)n;
    r.shared = shared;
    r.write = write;
}

void cuemu_ldsm_banks(const void *const *rows, const void *pc)
{
    if (!cuemu_race || m.block > 1) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        uintptr_t a[8];
        uint64_t w;

        for (int r = 0; r < 8; r++) {
            a[r] = (uintptr_t)rows[i * 8 + r];
        }
        w = waves_of(a, 8, 16);
        shared_traffic.requests++;
        shared_traffic.waves += w;
        shared_traffic.best++;
        places[pc].shared = true;
        places[pc].n = 16;
        places[pc].t.requests++;
        places[pc].t.waves += w;
        places[pc].t.best++;
    }
}

void cuemu_report_access(void)
{
    for (auto &kv : places) {
        const place_stats &s = kv.second;
        double n = (double)s.t.requests;

        if (s.shared) {
            printf("  %-20s shared %s %2d B: %.2f wavefronts (best %.2f)\n",
                   check_where(kv.first).c_str(), s.write ? "st" : "ld", s.n,
                   (double)s.t.waves / n, (double)s.t.best / n);
        } else {
            printf("  %-20s global %s %2d B: %.1f sectors (best %.1f)\n",
                   check_where(kv.first).c_str(), s.write ? "st" : "ld", s.n,
                   (double)s.t.sectors / n, (double)s.t.ideal / n);
        }
    }
    places.clear();
}

/* ---- an access ---- */

static void access_shared(const char *p, size_t n, bool write, bool atomic,
                          const void *pc)
{
    size_t off = (size_t)(p - m.arena), base = 0;
    const char *what = nullptr;

    for (auto &s : m.statics) {
        if (off >= s.second.first &&
            off + n <= s.second.first + s.second.second) {
            what = "shared";
            base = s.second.first;
        }
    }
    if (off + n <= m.dyn_bytes) {
        what = "dynamic shared";
    }
    if (what == nullptr) {
        REPORT(pc, "%zu bytes outside of shared memory, at +%zu", n, off);
        return;
    }
    if (!atomic && !(n == 2 && !write)) {
        note_request(p, n, write, true, pc);
    }
    for (size_t i = 0; i < n; i++) {
        touch(arena_cells[off + i], write, atomic,
              {pc, what, off + i - base, true});
    }
}

static void access_buffer(buffer *b, const char *p, size_t n, bool write,
                          bool atomic, const void *pc)
{
    size_t off = (size_t)(p - b->p);

    if (off + n > b->n) {
        REPORT(pc, "access past the end of a buffer of %zu bytes, at +%zu",
               b->n, off);
        return;
    }
    if (write && !b->writable) {
        REPORT(pc, "write to a buffer that is read only");
    }
    (write ? b->t.written : b->t.read) += n;
    if (!atomic) {
        note_request(p, n, write, false, pc);
    }
    for (size_t i = 0; i < n; i++) {
        b->reads[off + i] += !write;
        touch(b->cells[off + i], write, atomic, {pc, "buffer", off + i, false});
    }
}

/* This object's own bytes: constants. */
extern char __ehdr_start __attribute__((visibility("hidden")));
extern char _end __attribute__((visibility("hidden")));

void cuemu_access(const void *vp, size_t n, bool write, bool atomic,
                  const void *pc)
{
    const char *p = (const char *)vp;
    buffer *b;

    if (!cuemu_race || m.self == nullptr) {
        return;
    }
    if (p >= m.arena && p < m.arena + ARENA) {
        access_shared(p, n, write, atomic, pc);
        return;
    }
    if (p >= m.self->stack && p < m.self->stack + THR_STACK) {
        return; /* its own locals */
    }
    b = find(p);
    if (b != nullptr) {
        access_buffer(b, p, n, write, atomic, pc);
        return;
    }
    if ((p >= &__ehdr_start && p < &_end) ||
        (p >= (const char *)m.arg && p < (const char *)m.arg + m.n_arg)) {
        return; /* constants, and the launch's parameters */
    }
    for (thr &t : m.thread) {
        if (p >= t.stack && p < t.stack + THR_STACK) {
            REPORT(pc, "access to another thread's locals");
            return;
        }
    }
    auto i = buffers.upper_bound((char *)p);

    if (i != buffers.begin()) {
        --i;
        REPORT(pc,
               "wild access; the nearest buffer has %zu bytes, this is +%zd",
               i->second.n, (ssize_t)(p - i->second.p));
    } else {
        REPORT(pc, "wild access, below every buffer");
    }
}

void check_cp_issue(char *dst, size_t n, const void *pc)
{
    for (size_t i = 0; cuemu_race && i < n; i++) {
        cell &c = arena_cells[(size_t)(dst - m.arena) + i];

        c.pending = 1;
        c.w_pc = pc;
    }
}

void check_cp_land(char *dst, size_t n, const void *pc)
{
    for (size_t i = 0; cuemu_race && i < n; i++) {
        cell &c = arena_cells[(size_t)(dst - m.arena) + i];

        c.pending = 0;
        note_write(c, {pc, "", 0, true}, false);
    }
}

/* ---- launches and blocks ---- */

void check_launch(void)
{
    released.clear();
    acquired.clear();
    if (!cuemu_race) {
        return;
    }
    arena_cells.resize(ARENA);
    for (auto &b : buffers) {
        for (cell &c : b.second.cells) {
            c.w_block = c.r_block = 0;
        }
    }
}

void check_block(size_t clear)
{
    if (cuemu_race) {
        std::fill(arena_cells.begin(), arena_cells.begin() + (long)clear,
                  cell());
    }
}

void check_block_end(void)
{
    if (cuemu_race) {
        count_requests();
    }
}

/* ---- the compiler's hooks ---- */

extern "C" {
void __tsan_init(void);
void __tsan_init(void)
{
    cuemu_race = true;
}
void __tsan_func_entry(void *p)
{
    (void)p;
}
void __tsan_func_exit(void)
{
}
#define HOOK(name, n, write)                        \
    void name(void *p)                              \
    {                                               \
        cuemu_access(p, n, write, false, CUEMU_PC); \
    }
#define HOOKS(n)                             \
    HOOK(__tsan_read##n, n, false)           \
    HOOK(__tsan_write##n, n, true)           \
    HOOK(__tsan_unaligned_read##n, n, false) \
    HOOK(__tsan_unaligned_write##n, n, true)
HOOKS(1)
HOOKS(2)
HOOKS(4) HOOKS(8) HOOKS(16) void __tsan_read_range(void *p, unsigned long n)
{
    cuemu_access(p, n, false, false, CUEMU_PC);
}
void __tsan_write_range(void *p, unsigned long n)
{
    cuemu_access(p, n, true, false, CUEMU_PC);
}
}
