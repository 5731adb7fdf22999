// The standing threads that share one job.
//
// A job begins with a roll call: thread 0 summons the others and starts with those that answer in
// time, so a thread whose core is taken costs little. Inside a job, phases end at a barrier; the
// last to arrive compares how long it was waited for with how long the waiting thread had worked.
// What exceeds that is debt, which the time that passes pays off in part. Too much debt means that
// some core is not ours alone: fewer threads go on, and all are tried again after a pause that
// doubles as long as trying fails. Shares of work are never taken over, so every thread that has
// entered a phase is waited for.
//
// Times are in nanoseconds. Everything the barrier keeps is touched only by the last to arrive.
#include "pool.h"

#include "nk.h"
#include "thread.h"

namespace {

constexpr uint64_t kMicrosecond = 1000, kMillisecond = 1000 * kMicrosecond;
constexpr uint64_t kAwake = kMillisecond;          // a thread spins so long for the next job
constexpr uint64_t kRollCall = 400 * kMicrosecond;  // waking takes some 50, from deep sleep 200
constexpr uint64_t kStart = 20 * kMillisecond;     // for threads that are only being made
constexpr uint64_t kPolite = 200 * kMicrosecond;   // spin so long before offering the core to others
constexpr uint64_t kGrace = 100 * kMicrosecond;    // lateness that is not worth counting
constexpr uint64_t kDebt = 2500 * kMicrosecond;    // at most this much; a time slice is 3 ms and more
constexpr uint64_t kPaid = 4;                      // a fourth of the time that passes is paid off
constexpr uint64_t kFirstPause = 50 * kMillisecond, kLongestPause = 1000 * kMillisecond;
constexpr uint64_t kProven = 150 * kMillisecond;   // running so long with all threads is a success
constexpr int kSpins = 64;                         // between two looks at the clock
constexpr int kLine = 128;                         // bytes that two cores do not share

// Free → Called by thread 0 → Here by the worker → Going by thread 0 → Free by the worker.
enum State : uint32_t { kFree, kAsleep, kCalled, kHere, kGoing, kEnd };

struct alignas(kLine) Worker {
    uint32_t state;
    int number, threads;  // in the job at hand
    nk_bed bed;
    nk_thread handle;
};

struct Pool {
    // Where waiting threads look: how many phases there were, shifted by 16, and how many go on.
    alignas(kLine) uint64_t phase = 1;
    alignas(kLine) uint32_t arrived = 0;
    uint64_t half_at = 0;   // when the first half of the threads had arrived
    uint64_t began_at = 0;  // this phase
    uint64_t debt = 0;

    alignas(kLine) nk_job job = nullptr;
    void *context = nullptr;
    uint32_t rest = 0;  // threads without a job sleep at once
    uint32_t running = 0, closing = 0;

    int size = 1;       // as set, the caller included
    int created = 0;    // workers that exist
    int active = 1;     // threads that ended the last job
    int limit = 1;      // threads that may be tried now
    int proven = 1;     // threads that went well
    int step = 1;       // how many to drop at the next trouble
    int last = 0;       // the worker that is called last: it was late
    bool trying = false;
    uint32_t crowded = 0;  // more threads than processors: offer the core at once
    uint64_t tried = 0;    // how long it has gone well while trying
    uint64_t pause = 0, try_at = 0;
    uint64_t started_at = 0;  // the job at hand
};

Pool pool;
Worker workers[NK_MOST_THREADS - 1];

template <class T> T load(const T &value) { return __atomic_load_n(&value, __ATOMIC_ACQUIRE); }
template <class T> void store(T &value, T to) { __atomic_store_n(&value, to, __ATOMIC_RELEASE); }
template <class T> T peek(const T &value) { return __atomic_load_n(&value, __ATOMIC_RELAXED); }
template <class T> void note(T &value, T to) { __atomic_store_n(&value, to, __ATOMIC_RELAXED); }
bool change(uint32_t &state, uint32_t from, uint32_t to) {
    return __atomic_compare_exchange_n(&state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

// One wait: spins, and offers the core to others once the wait is long.
class Wait {
    int spins_ = 0;
    uint64_t since_ = 0, now_ = 0;

  public:
    void once() {
        nk_pause();
        if (++spins_ < kSpins) return;
        spins_ = 0;
        now_ = nk_now();
        if (since_ == 0) since_ = now_;
        if (peek(pool.crowded) || now_ - since_ > kPolite) nk_yield();
    }
    uint64_t waited() const { return now_ - since_; }  // nearly: the first spins do not count
};

int going() { return (int)(load(pool.phase) & 0xffff); }

// --- how many threads to use

void forget_trouble() {
    pool.limit = pool.proven = pool.size;
    pool.step = 1;
    pool.last = 0;
    pool.trying = false;
    pool.pause = pool.try_at = pool.debt = 0;
}

// A core is busy: with fewer threads from here on, at most `threads` - 1.
void retreat(uint64_t now, int threads) {
    if (pool.trying) {
        pool.pause = pool.pause * 2 < kLongestPause ? pool.pause * 2 : kLongestPause;
    } else {
        if (pool.proven > threads - pool.step) pool.proven = threads - pool.step;
        pool.step *= 2;
        if (pool.pause == 0) pool.pause = kFirstPause;
    }
    if (pool.proven >= threads) pool.proven = threads - 1;
    if (pool.proven < 1) pool.proven = 1;
    pool.limit = pool.proven;
    pool.trying = false;
    pool.try_at = now + pool.pause;
    pool.debt = 0;
}

void advance(uint64_t now) {
    if (pool.limit == pool.size || now < pool.try_at) return;
    pool.limit = pool.size;
    pool.trying = true;
    pool.tried = 0;
    pool.debt = 0;
}

void went_well(uint64_t time) {
    if (!pool.trying) return;
    pool.tried += time;
    if (pool.tried >= kProven) forget_trouble();
}

// Counts one phase that thread `thread` ended at `now`, `waited` for since `half`. True: too much.
bool too_late(uint64_t now, uint64_t half) {
    const uint64_t paid = (now - pool.began_at) / kPaid;
    pool.debt -= paid < pool.debt ? paid : pool.debt;
    if (half <= pool.began_at || now <= half) return false;  // nobody has waited
    const uint64_t wait = now - half, work = half - pool.began_at;
    if (wait > work + kGrace) pool.debt += wait - work;
    return pool.debt > kDebt;
}

// --- the workers

// Spins, then sleeps, until called. False: the thread is to end.
bool called(Worker &me, bool spin) {
    Wait wait;
    for (;;) {
        const uint32_t state = load(me.state);
        if (state == kCalled) return true;
        if (state == kEnd) return false;
        if (spin && !peek(pool.rest) && wait.waited() < kAwake) {
            wait.once();
        } else if (state == kAsleep || change(me.state, kFree, kAsleep)) {
            nk_sleep_while(&me.bed, &me.state, kAsleep);
        }
    }
}

NK_ENTRY(serve, argument) {
    Worker &me = *(Worker *)argument;
    nk_thread_name((int)(&me - workers) + 1);
    bool spin = true;
    while (called(me, spin)) {
        spin = false;
        if (!change(me.state, kCalled, kHere)) continue;  // too late, not wanted any more
        Wait wait;
        while (load(me.state) != kGoing) wait.once();
        pool.job(pool.context, me.number, me.threads);
        spin = me.number < going();  // who was sent away leaves the core to others
        store(me.state, (uint32_t)kFree);
    }
    return 0;
}

void call(Worker &worker) {
    if (__atomic_exchange_n(&worker.state, (uint32_t)kCalled, __ATOMIC_ACQ_REL) == kAsleep)
        nk_wake(&worker.bed, &worker.state);
}

void end_workers(int from) {
    for (int i = from; i < pool.created; ++i) {
        if (__atomic_exchange_n(&workers[i].state, (uint32_t)kEnd, __ATOMIC_ACQ_REL) == kAsleep)
            nk_wake(&workers[i].bed, &workers[i].state);
    }
    for (int i = from; i < pool.created; ++i) nk_thread_join(workers[i].handle);
    if (from < pool.created) pool.created = from;
}

#if !defined(_WIN32)
// Only the forking thread lives on in the child: there are no workers, and no job is running.
void after_fork() {
    pool.created = 0;
    pool.running = 0;
    pool.arrived = 0;
    pool.phase = 1;
    forget_trouble();
}

// Threads must not outlive the code they run. A job that is running ends with the process.
__attribute__((destructor)) void close_pool() {
    __atomic_store_n(&pool.closing, 1u, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&pool.running, __ATOMIC_SEQ_CST)) end_workers(0);
}
#endif

// Before the first thread is made: it must find its code, and a child process must know of nothing.
void prepare() {
#if defined(_WIN32)
    HMODULE self;  // waiting for threads while a library is unloaded would never end: it stays
    GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
                       (LPCWSTR)(const void *)&pool, &self);
#else
    static bool told = false;
    if (!told) told = pthread_atfork(nullptr, nullptr, after_fork) == 0;
#endif
}

// True when some are new.
bool create_workers() {
    if (pool.created >= pool.size - 1) return false;
    prepare();
    note(pool.crowded, (uint32_t)(pool.size > nk_processors()));
    while (pool.created < pool.size - 1) {
        Worker &worker = workers[pool.created];
        worker.state = kFree;
        nk_bed_make(&worker.bed);
        if (!nk_thread_start(&worker.handle, serve, &worker)) {
            pool.size = pool.created + 1;
            forget_trouble();
            break;
        }
        ++pool.created;
    }
    return true;
}

// Calls `wanted` - 1 workers, numbers those that answer in time, and returns how many threads go.
int roll_call(int wanted, uint64_t patience) {
    const int count = pool.size - 1;
    bool chosen[NK_MOST_THREADS] = {};
    for (int k = 1; k < wanted; ++k) {
        const int i = (pool.last + k) % count;
        chosen[i] = true;
        call(workers[i]);
    }
    Wait wait;
    int threads = 1;
    for (int i = 0; i < count; ++i) {
        if (!chosen[i]) continue;
        while (load(workers[i].state) != kHere && wait.waited() < patience) wait.once();
        if (load(workers[i].state) == kHere || !change(workers[i].state, kCalled, kFree))
            workers[i].number = threads++;
        else
            chosen[i] = false, pool.last = i;
    }
    for (int i = 0; i < count; ++i)
        if (chosen[i]) workers[i].threads = threads;
    note(pool.phase, peek(pool.phase) >> 16 << 16 | (uint64_t)threads);
    for (int i = 0; i < count; ++i)
        if (chosen[i]) store(workers[i].state, (uint32_t)kGoing);
    return threads;
}

// The end of a job is a phase that only thread 0 waits for.
void await_leaving() {
    const uint64_t half = nk_now();
    const int threads = going();
    Wait wait;
    for (int i = 0; i < pool.size - 1; ++i)
        while (load(workers[i].state) == kGoing) wait.once();
    const uint64_t now = wait.waited() ? nk_now() : half;
    if (threads > 1 && too_late(now, half)) retreat(now, threads);
    went_well(now - pool.started_at);
    pool.active = threads;
}

void run_together(nk_job job, void *context) {
    pool.started_at = nk_now();
    advance(pool.started_at);
    const bool fresh = pool.limit > 1 && create_workers();
    pool.job = job;
    pool.context = context;
    note(pool.rest, 0u);
    const int wanted = pool.limit, threads = roll_call(wanted, fresh ? kStart : kRollCall);
    if (threads < wanted) retreat(nk_now(), wanted);
    pool.began_at = pool.started_at;
    job(context, 0, threads);
    await_leaving();
}

// Thread `thread` is the last of `threads`: decides how many go on.
int next_threads(int thread, int threads) {
    const uint64_t now = nk_now();
    const bool late = too_late(now, peek(pool.half_at));
    pool.began_at = now;
    if (!late) return threads;
    for (int i = 0; i < pool.size - 1; ++i)
        if (peek(workers[i].state) == kGoing && workers[i].number == thread) pool.last = i;
    retreat(now, threads);
    return pool.limit;
}

}  // namespace

void nk_pool_run(nk_job job, void *context) {
    __atomic_store_n(&pool.running, 1u, __ATOMIC_SEQ_CST);
    if (pool.size == 1 || __atomic_load_n(&pool.closing, __ATOMIC_SEQ_CST)) {
        nk_pool_alone(job, context);
        pool.active = 1;
    } else {
        run_together(job, context);
    }
    store(pool.running, 0u);
}

void nk_pool_alone(nk_job job, void *context) {
    const uint64_t phase = peek(pool.phase);
    note(pool.phase, phase >> 16 << 16 | 1);
    job(context, 0, 1);
}

int nk_pool_barrier(int thread) {
    const uint64_t phase = load(pool.phase);
    const uint32_t threads = (uint32_t)(phase & 0xffff);
    if (threads == 1) return 1;
    const uint64_t now = nk_now();
    const uint32_t arrived = __atomic_add_fetch(&pool.arrived, 1u, __ATOMIC_ACQ_REL);
    if (arrived == threads) {
        const int next = next_threads(thread, (int)threads);
        note(pool.arrived, 0u);
        store(pool.phase, ((phase >> 16) + 1) << 16 | (uint64_t)next);
        return next;
    }
    if (arrived == threads / 2) note(pool.half_at, now);
    Wait wait;
    while (load(pool.phase) == phase) wait.once();
    return going();
}

int nk_pool_set(int threads) {
    if (threads < 1 || threads > NK_MOST_THREADS) return NK_NO_THREADS;
    end_workers(threads - 1);
    pool.size = pool.active = threads;
    forget_trouble();
    return NK_OK;
}

int nk_pool_size(void) { return pool.size; }
int nk_pool_active(void) { return pool.active; }
void nk_pool_idle(void) { note(pool.rest, 1u); }
