// The standing threads that share one job.
//
// A job begins with a roll call: thread 0 summons the others and starts with those that answer in
// time, so a thread whose core is taken costs little. Inside a job, phases end at a barrier, where
// each thread writes down when it arrived and reads when the others did. From these times all work
// out the same judgement: what was lost by waiting is debt, and what was won by sharing pays it
// off. Too much debt means that a core is so little ours that fewer threads are faster: fewer go
// on. After a pause, which doubles while that fails, those left out look whether another program
// still has their core, with no share of the work, so nobody waits for them; if not, all are tried
// again. Being late now and then is no reason: where other machines share the processor, every core
// is taken for moments, and two that often wait still do more than one. Shares of work are never
// taken over, so who has entered a phase is waited for.
//
// Times are in nanoseconds.
#include "run/pool.h"

#include "api/nk.h"
#include "run/thread.h"

namespace {

constexpr uint64_t kMicrosecond = 1000, kMillisecond = 1000 * kMicrosecond;
constexpr uint64_t kAwake = kMillisecond;         // a thread spins so long for the next job
constexpr uint64_t kPrompt = 400 * kMicrosecond;  // waking takes some 50, from deep sleep 200
constexpr uint64_t kRollCall = 5 * kMillisecond;  // who has not answered then is left out of a job
constexpr uint64_t kStart = 20 * kMillisecond;    // for threads that are only being made
constexpr uint64_t kPolite = 200 * kMicrosecond;  // spin so long before offering the core to others
constexpr uint64_t kGrace = 100 * kMicrosecond;   // lateness that is not worth counting
constexpr uint64_t kLong = 500 * kMicrosecond;    // a phase that is worth asking the system about
constexpr int64_t kMostDebt = 10 * kMillisecond;  // two or three time slices
constexpr int64_t kMostCredit = 10 * kMillisecond;  // what good times save up against a bad moment
constexpr uint64_t kPaid = 4;  // a fourth of the time that goes well pays off debt
constexpr uint64_t kFirstPause = 100 * kMillisecond, kLongestPause = 1000 * kMillisecond;
constexpr uint64_t kProbe = 20 * kMillisecond;    // several time slices of any system
constexpr uint64_t kProven = 150 * kMillisecond;  // running so long with all threads is a success
constexpr int kSpins = 64;                        // between two looks at the clock
constexpr int kLine = 128;                        // bytes that two cores do not share

// Free → Called by thread 0 → Here by the worker → Going by thread 0 → Free by the worker.
// Free → Probing by thread 0 → Free by the worker; a call breaks it off.
enum State : uint32_t { kFree, kAsleep, kCalled, kHere, kGoing, kProbing, kEnd };

struct alignas(kLine) Worker {
    uint32_t state;
    int number;          // in the job at hand
    bool kept_off;       // the processor of thread 0, when it was woken
    uint32_t preempted;  // another program had its core since the last job
    uint32_t disturbed;  // or too much of it in the last probe
    nk_places all;
    nk_bed bed;
    nk_thread handle;
};

// What the thread of one number shows the others at barriers, and what it keeps for itself.
struct alignas(kLine) Post {
    // Of even and odd phases apart: a fast thread may be one barrier ahead of who still reads.
    uint64_t arrived[2], arrived_at[2];
    uint32_t preempted[2];  // another program had the core meanwhile
    alignas(kLine) uint64_t phase;
    uint64_t began_at, preemptions;
    int64_t debt;
    int threads;  // that go on
};

struct Pool {
    // Of the job at hand: written by thread 0 before the others go.
    alignas(kLine) nk_job job = nullptr;
    void *context = nullptr;
    int threads = 1;
    int fallback = 1;    // threads that go on when one is late
    uint64_t phase = 0;  // barriers before this job
    uint64_t started_at = 0;
    int64_t debt = 0;  // below 0: credit

    // Read by waiting threads.
    alignas(kLine) uint32_t rest = 0;  // without a job, sleep at once
    uint32_t crowded = 0;              // more threads than processors: offer the core at once
    uint32_t running = 0, closing = 0;

    // Thread 0's own.
    alignas(kLine) int size = 1;  // as set, the caller included
    int created = 0;              // workers that exist
    int limit = 1;                // threads that may be tried now
    int proven = 1;               // threads that went well
    int step = 1;                 // how many to drop at the next trouble
    int last = 0;                 // the worker that is called last: it was late
    bool probing = false;         // those left out, before more are tried
    bool trying = false;          // more than proven
    uint64_t tried = 0;           // how long that has gone well
    uint64_t pause = 0, try_at = 0;
};

Pool pool;
Worker workers[NK_MOST_THREADS - 1];
Post posts[NK_MOST_THREADS];

template <class T> T load(const T &value) { return __atomic_load_n(&value, __ATOMIC_ACQUIRE); }
template <class T> void store(T &value, T to) { __atomic_store_n(&value, to, __ATOMIC_RELEASE); }
template <class T> T peek(const T &value) { return __atomic_load_n(&value, __ATOMIC_RELAXED); }
template <class T> void note(T &value, T to) { __atomic_store_n(&value, to, __ATOMIC_RELAXED); }
bool change(uint32_t &state, uint32_t from, uint32_t to) {
    return __atomic_compare_exchange_n(&state, &from, to, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}
uint32_t exchange(uint32_t &state, uint32_t to) {
    return __atomic_exchange_n(&state, to, __ATOMIC_ACQ_REL);
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

// --- how many threads to use: thread 0 decides

void forget_trouble() {
    pool.limit = pool.proven = pool.size;
    pool.step = 1;
    pool.last = 0;
    pool.probing = pool.trying = false;
    pool.pause = pool.try_at = 0;
    pool.debt = 0;
}

int fallback(int threads) {
    int fewer = pool.trying ? pool.proven : threads - pool.step;
    if (fewer >= threads) fewer = threads - 1;
    return fewer < 1 ? 1 : fewer;
}

// Trying was in vain: again after a longer pause.
void put_off(uint64_t now) {
    pool.pause = pool.pause * 2 < kLongestPause ? pool.pause * 2 : kLongestPause;
    pool.try_at = now + pool.pause;
}

// A core is busy: `threads` from here on, and all again after a pause.
void retreat(uint64_t now, int threads) {
    if (pool.trying) {
        put_off(now);
    } else {
        pool.step *= 2;
        if (pool.pause == 0) pool.pause = kFirstPause;
        pool.try_at = now + pool.pause;
    }
    if (threads < pool.proven) pool.proven = threads;
    pool.limit = pool.proven;
    pool.probing = pool.trying = false;
}

void try_all() {
    pool.limit = pool.size;
    pool.trying = true;
    pool.tried = 0;
    pool.debt = 0;
}

void tell(Worker &worker, State state) {
    if (exchange(worker.state, state) == kAsleep) nk_wake(&worker.bed, &worker.state);
}

// Wakes a worker up, or has it look up from its spinning, for `state`.
void summon(Worker &worker, State state) {
    if (!pool.crowded && load(worker.state) == kAsleep)
        worker.kept_off = nk_keep_off_here(worker.handle, &worker.all);
    tell(worker, state);
}

void begin_probes() {
    const int count = pool.size - 1;
    for (int i = 0; i < count; ++i) note(workers[i].disturbed, 0u);
    for (int k = pool.limit; k <= count; ++k) summon(workers[(pool.last + k) % count], kProbing);
    pool.probing = true;
}

// Before a job: once it is time for that, has those left out look whether their cores are free, and
// once all have looked, goes by what they found.
void advance(uint64_t now) {
    if (pool.limit == pool.size || now < pool.try_at) return;
    if (!pool.probing) return begin_probes();
    bool disturbed = false;
    for (int i = 0; i < pool.size - 1; ++i) {
        if (load(workers[i].state) == kProbing) return;
        if (peek(workers[i].disturbed)) disturbed = true;
    }
    pool.probing = false;
    if (disturbed) put_off(now);
    else try_all();
}

void went_well(uint64_t time) {
    if (!pool.trying) return;
    pool.tried += time;
    if (pool.tried >= kProven) forget_trouble();
}

// What counts of the time lost by waiting for one of `threads` whose core another machine had. The
// question is whether fewer would have been faster: each spares the others its share of the work,
// so of few threads one may be late more often.
int64_t weighed(uint64_t lost, int threads) {
    const uint64_t others = (uint64_t)(threads - 1);
    return (int64_t)(others < kPaid ? lost * others / kPaid : lost);
}

// Counts one phase, in which thread `late` arrived last, at `latest`, and the others had worked for
// `work` on average. True: too late.
//
// What the phase took beyond twice the others' work is lost. If another program had the late one's
// core, all of that counts: with fewer threads that program has a core to itself. Else it is
// weighed. Where thread 0 was late nothing counts: it would have been so alone.
bool too_late(Post &me, int late, bool preempted, uint64_t latest, uint64_t work) {
    const uint64_t time = latest > me.began_at ? latest - me.began_at : 0;
    if (time > 2 * work + kGrace) {
        const uint64_t lost = time - 2 * work;
        if (preempted) me.debt += (int64_t)lost;
        else if (late > 0) me.debt += weighed(lost, me.threads);
    } else {
        me.debt -= (int64_t)(time / kPaid);
        if (me.debt < -kMostCredit) me.debt = -kMostCredit;
    }
    me.began_at = latest;
    if (me.debt <= kMostDebt) return false;
    me.debt = 0;
    return true;
}

// --- the workers

// How much of a while another program had a core, as one sees who looks at the clock all the time.
// What another machine took does not count: whether it is too much is seen when all are tried.
class Probe {
    uint64_t began_at_, seen_at_, preemptions_, lost_ = 0;

  public:
    Probe(uint64_t now, uint64_t preemptions)
        : began_at_(now), seen_at_(now), preemptions_(preemptions) {}
    void look(uint64_t now, uint64_t preemptions) {
        if (preemptions != preemptions_ && now - seen_at_ > kGrace) lost_ += now - seen_at_;
        preemptions_ = preemptions;
        seen_at_ = now;
    }
    bool over() const { return seen_at_ - began_at_ >= kProbe; }
    // Debt would grow: a fourth of the time that goes well pays it off.
    bool disturbed() const { return lost_ > (seen_at_ - began_at_ - lost_) / kPaid; }
};

void probe(Worker &me) {
    Probe probe(nk_now(), nk_preemptions());
    while (load(me.state) == kProbing) {
        for (int i = 0; i < kSpins; ++i) nk_pause();
        probe.look(nk_now(), nk_preemptions());
        if (!probe.over()) continue;
        note(me.disturbed, (uint32_t)probe.disturbed());
        change(me.state, kProbing, kFree);
    }
}

void move_freely(Worker &me) {
    if (me.kept_off) nk_move_freely(&me.all);
    me.kept_off = false;
}

// Spins, then sleeps, and probes, until called. False: the thread is to end.
bool called(Worker &me, bool spin) {
    Wait wait;
    for (;;) {
        const uint32_t state = load(me.state);
        if (state == kCalled || state == kProbing) move_freely(me);
        if (state == kCalled) return true;
        if (state == kEnd) return false;
        if (state == kProbing) {
            probe(me);
            spin = false;  // it leaves the core to others
        } else if (spin && !peek(pool.rest) && wait.waited() < kAwake) {
            wait.once();
        } else if (state == kAsleep || change(me.state, kFree, kAsleep)) {
            nk_sleep_while(&me.bed, &me.state, kAsleep);
        }
    }
}

// Runs one thread's part of the job. True: it was in it to the end.
bool take_part(int number) {
    Post &post = posts[number];
    post.phase = pool.phase;
    post.began_at = pool.started_at;
    post.debt = pool.debt;
    post.preemptions = nk_preemptions();
    post.threads = pool.threads;
    pool.job(pool.context, number, pool.threads);
    return number < post.threads;
}

NK_ENTRY(serve, argument) {
    Worker &me = *(Worker *)argument;
    nk_thread_name((int)(&me - workers) + 1);
    bool spin = true;
    uint64_t preemptions = nk_preemptions();
    while (called(me, spin)) {
        spin = false;
        note(me.preempted, (uint32_t)(nk_preemptions() != preemptions));
        if (!change(me.state, kCalled, kHere)) continue;  // too late, not wanted any more
        Wait wait;
        while (load(me.state) != kGoing) wait.once();
        spin = take_part(me.number);  // who was sent away leaves the core to others
        preemptions = nk_preemptions();
        store(me.state, (uint32_t)kFree);
    }
    return 0;
}

void end_workers(int from) {
    for (int i = from; i < pool.created; ++i) tell(workers[i], kEnd);
    for (int i = from; i < pool.created; ++i) nk_thread_join(workers[i].handle);
    if (from < pool.created) pool.created = from;
}

#if !defined(_WIN32)
// Only the forking thread lives on in the child: there are no workers, and no job is running.
void after_fork() {
    pool.created = 0;
    pool.running = 0;
    pool.phase = 0;
    for (Post &post : posts) post = {};  // another thread's job may have been at a barrier
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
        worker.kept_off = !pool.crowded && nk_keep_off_here(worker.handle, &worker.all);
        ++pool.created;
    }
    return true;
}

// --- a job

// Calls `wanted` - 1 workers, numbers those that answer in time, and returns how many threads go.
// `preempted`: another program had the core of one of them.
int roll_call(int wanted, uint64_t patience, bool chosen[NK_MOST_THREADS], bool &preempted) {
    const int count = pool.size - 1;
    for (int k = 1; k < wanted; ++k) {
        const int i = (pool.last + k) % count;
        chosen[i] = true;
        summon(workers[i], kCalled);
    }
    Wait wait;
    int threads = 1;
    for (int i = 0; i < count; ++i) {
        if (!chosen[i]) continue;
        while (load(workers[i].state) != kHere && wait.waited() < patience) wait.once();
        chosen[i] = load(workers[i].state) == kHere || !change(workers[i].state, kCalled, kFree);
        if (chosen[i]) workers[i].number = threads++;
        else pool.last = i;
        if (chosen[i] && peek(workers[i].preempted)) preempted = true;
    }
    return threads;
}

// The end of a job is a phase that only thread 0 waits for.
void await_leaving() {
    Post &me = posts[0];
    Wait wait;
    const uint64_t arrived_at = nk_now();
    for (int i = 0; i < pool.size - 1; ++i)
        while (load(workers[i].state) == kGoing) wait.once();
    const uint64_t now = wait.waited() ? nk_now() : arrived_at;
    const uint64_t work = arrived_at > me.began_at ? arrived_at - me.began_at : 0;
    const int late = 1;  // some other thread, if any
    if (me.threads > 1 && too_late(me, late, false, now, work)) retreat(now, fallback(me.threads));
    if (pool.threads == pool.limit) went_well(now - pool.started_at);
    pool.debt = me.debt;
    pool.phase = me.phase;
}

void run_together(nk_job job, void *context) {
    pool.started_at = nk_now();
    advance(pool.started_at);
    const bool fresh = pool.limit > 1 && create_workers();
    pool.job = job;
    pool.context = context;
    note(pool.rest, 0u);
    bool chosen[NK_MOST_THREADS] = {};
    bool preempted = false;
    const uint64_t called_at = nk_now();
    pool.threads = roll_call(pool.limit, fresh ? kStart : kRollCall, chosen, preempted);
    const uint64_t now = nk_now(), waited = now - called_at;
    if (!fresh && waited > kPrompt)
        pool.debt += preempted ? (int64_t)waited : weighed(waited, pool.limit);
    if (pool.debt > kMostDebt) {
        pool.debt = 0;
        retreat(now, fallback(pool.limit));
    }
    pool.fallback = fallback(pool.threads);
    for (int i = 0; i < pool.size - 1; ++i)
        if (chosen[i]) store(workers[i].state, (uint32_t)kGoing);
    take_part(0);
    await_leaving();
}

// Thread 0 has seen that thread `late` kept all waiting until `now`.
void blame(int late, uint64_t now, int threads) {
    for (int i = 0; i < pool.size - 1; ++i)
        if (peek(workers[i].state) == kGoing && workers[i].number == late) pool.last = i;
    retreat(now, threads);
}

void arrive(Post &me) {
    const int side = (int)(++me.phase & 1);
    const uint64_t now = nk_now(), before = me.preemptions;
    if (now > me.began_at + kLong) me.preemptions = nk_preemptions();
    note(me.preempted[side], (uint32_t)(me.preemptions != before));
    note(me.arrived_at[side], now);
    store(me.arrived[side], me.phase);
}

void await(const Post &post, uint64_t phase) {
    Wait wait;
    while (load(post.arrived[phase & 1]) != phase) wait.once();
}

}  // namespace

void nk_pool_run(nk_job job, void *context) {
    __atomic_store_n(&pool.running, 1u, __ATOMIC_SEQ_CST);
    if (pool.size == 1 || __atomic_load_n(&pool.closing, __ATOMIC_SEQ_CST)) {
        nk_pool_alone(job, context);
    } else {
        run_together(job, context);
    }
    store(pool.running, 0u);
}

void nk_pool_alone(nk_job job, void *context) {
    posts[0].threads = 1;
    job(context, 0, 1);
}

int nk_pool_barrier(int thread) {
    Post &me = posts[thread];
    const int threads = me.threads;
    if (threads == 1) return 1;
    arrive(me);
    const int side = (int)(me.phase & 1);
    uint64_t latest = 0, sum = 0;
    int late = 0;
    for (int i = 0; i < threads; ++i) {
        await(posts[i], me.phase);
        const uint64_t at = peek(posts[i].arrived_at[side]);
        if (at > me.began_at) sum += at - me.began_at;
        if (at > latest) latest = at, late = i;
    }
    if (latest > me.began_at) sum -= latest - me.began_at;
    const bool preempted = peek(posts[late].preempted[side]) != 0;
    if (!too_late(me, late, preempted, latest, sum / (uint64_t)(threads - 1))) return threads;
    me.threads = threads > pool.fallback ? pool.fallback : threads - 1;
    if (thread == 0) blame(late, latest, me.threads);
    if (me.threads == 1) return 1;
    // Who leaves may still be reading: nobody writes the next but one arrival before that is done.
    arrive(me);
    for (int i = 0; i < threads && thread < me.threads; ++i) await(posts[i], me.phase);
    return me.threads;
}

int nk_pool_set(int threads) {
    if (threads < 1 || threads > NK_MOST_THREADS) return NK_NO_THREADS;
    end_workers(threads - 1);
    pool.size = threads;
    forget_trouble();
    return NK_OK;
}

int nk_pool_size(void) { return pool.size; }
void nk_pool_idle(void) { note(pool.rest, 1u); }
