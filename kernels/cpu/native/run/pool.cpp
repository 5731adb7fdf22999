// Thread pool: persistent workers run a job together with the caller; late workers are dropped.
//
// Wake-up: thread 0 wakes the workers and starts the job with those that respond within a time
// limit, so that a worker whose core is busy costs little. Barriers: each thread publishes its
// arrival time and reads those of the others, so that all compute the same decision. Time lost by
// waiting for the last thread adds to the lateness; time without waiting reduces it. Shrinking:
// above the lateness budget, the rest of the job and later jobs run on fewer threads, because they
// are faster without the busy core. Probing: after a pause, which doubles with every failure, the
// dropped workers sample the clock for a moment, outside any job, to detect whether another program
// still uses their cores. If not, a trial with all threads begins.
//
// The budget tolerates occasional lateness: on a shared machine every core is preempted now and
// then, and two threads that often wait are still faster than one. Static partitions are never
// reassigned, so a thread that has entered a phase is always waited for.
//
// Times are in nanoseconds.
#include "run/pool.h"

#include "api/nk.h"
#include "run/lateness.h"
#include "run/pool_state.h"
#include "run/thread.h"

namespace {

// --- the workers

void probe(Worker &me) {
    Probe probe(nk_now(), nk_preemptions());
    while (load_acquire(me.state) == kProbing) {
        for (int i = 0; i < kSpins; ++i) nk_pause();
        probe.sample(nk_now(), nk_preemptions());
        if (!probe.done()) continue;
        store_relaxed(me.core_busy, (uint32_t)probe.core_busy());
        compare_exchange(me.state, kProbing, kIdle);
    }
}

void restore_affinity(Worker &me) {
    if (me.affinity_limited) nk_restore_affinity(&me.all);
    me.affinity_limited = false;
}

// Waits for the next job, by spinning and then sleeping, and runs requested probes. False: exit the
// thread.
bool wait_for_job(Worker &me, bool spin) {
    Wait wait;
    for (;;) {
        const uint32_t state = load_acquire(me.state);
        if (state == kCalled || state == kProbing) restore_affinity(me);
        if (state == kCalled) return true;
        if (state == kExit) return false;
        if (state == kProbing) {
            probe(me);
            spin = false;  // after a probe the worker sleeps, which frees the core
        } else if (spin && !load_relaxed(pool.sleep_now) && wait.waited() < kSleepAfter) {
            wait.spin();
        } else if (state == kAsleep || compare_exchange(me.state, kIdle, kAsleep)) {
            nk_sleep_while(&me.waiter, &me.state, kAsleep);
        }
    }
}

// Runs one thread's part of the job. True: it was not dropped.
bool run_part(int number) {
    Participant &participant = participants[number];
    participant.phase = pool.phase;
    participant.began_at = pool.started_at;
    participant.lateness = pool.lateness;
    participant.preemptions = nk_preemptions();
    participant.threads = pool.threads;
    pool.job(pool.context, number, pool.threads);
    return number < participant.threads;
}

NK_THREAD_ENTRY(worker_main, argument) {
    Worker &me = *(Worker *)argument;
    nk_thread_name((int)(&me - workers) + 1);
    bool spin = true;
    uint64_t preemptions = nk_preemptions();
    while (wait_for_job(me, spin)) {
        spin = false;
        store_relaxed(me.preempted, (uint32_t)(nk_preemptions() != preemptions));
        if (!compare_exchange(me.state, kCalled, kReady))
            continue;  // woke after the limit: the job runs without this worker
        Wait wait;
        while (load_acquire(me.state) != kRunning) wait.spin();
        spin = run_part(me.number);  // a dropped worker sleeps, which frees the core
        preemptions = nk_preemptions();
        store_release(me.state, (uint32_t)kIdle);
    }
    return 0;
}

void end_workers(int from) {
    for (int i = from; i < pool.created; ++i) set_state(workers[i], kExit);
    for (int i = from; i < pool.created; ++i) nk_thread_join(workers[i].handle);
    if (from < pool.created) pool.created = from;
}

#if !defined(_WIN32)
// Only the forking thread exists in the child process: no workers, and no running job.
void after_fork() {
    pool.created = 0;
    pool.running = 0;
    pool.phase = 0;
    for (Participant &participant : participants)
        participant = {};  // the parent's job may have been inside a barrier
    reset_lateness();
}

// Workers must exit before the library is unloaded. A running job ends with the process.
__attribute__((destructor)) void close_pool() {
    __atomic_store_n(&pool.closing, 1u, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&pool.running, __ATOMIC_SEQ_CST)) end_workers(0);
}
#endif

// Before the first worker starts: pins the library, and registers the reset of forked children.
void prepare() {
#if defined(_WIN32)
    HMODULE self;  // joining threads during an unload deadlocks: never unload
    GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
                       (LPCWSTR)(const void *)&pool, &self);
#else
    static bool registered = false;
    if (!registered) registered = pthread_atfork(nullptr, nullptr, after_fork) == 0;
#endif
}

// True when new workers were created.
bool create_workers() {
    if (pool.created >= pool.size - 1) return false;
    prepare();
    store_relaxed(pool.oversubscribed, (uint32_t)(pool.size > nk_processors()));
    while (pool.created < pool.size - 1) {
        Worker &worker = workers[pool.created];
        worker.state = kIdle;
        nk_waiter_init(&worker.waiter);
        if (!nk_thread_start(&worker.handle, worker_main, &worker)) {
            pool.size = pool.created + 1;
            reset_lateness();
            break;
        }
        worker.affinity_limited = !pool.oversubscribed &&
                                  nk_avoid_current_cpu(worker.handle, &worker.all);
        ++pool.created;
    }
    return true;
}

// --- a job

// Wakes `wanted` - 1 workers, numbers those that respond within kWakeLimit, and returns the thread
// count of the job, thread 0 included. `preempted`: the core of one of them ran another program.
int wake_workers(int wanted, bool chosen[NK_MAX_THREADS], bool &preempted) {
    const int count = pool.size - 1;
    for (int k = 1; k < wanted; ++k) {
        const int i = (pool.late_worker + k) % count;
        chosen[i] = true;
        wake_with_state(workers[i], kCalled);
    }
    Wait wait;
    int threads = 1;
    for (int i = 0; i < count; ++i) {
        if (!chosen[i]) continue;
        while (load_acquire(workers[i].state) != kReady && wait.waited() < kWakeLimit) wait.spin();
        chosen[i] = load_acquire(workers[i].state) == kReady ||
                    !compare_exchange(workers[i].state, kCalled, kIdle);
        if (chosen[i]) workers[i].number = threads++;
        else pool.late_worker = i;
        if (chosen[i] && load_relaxed(workers[i].preempted)) preempted = true;
    }
    return threads;
}

// Waits for all threads; the end of a job counts as a barrier at which only thread 0 waits.
void finish_job() {
    Participant &me = participants[0];
    Wait wait;
    const uint64_t arrived_at = nk_now();
    for (int i = 0; i < pool.size - 1; ++i)
        while (load_acquire(workers[i].state) == kRunning) wait.spin();
    const uint64_t now = wait.waited() ? nk_now() : arrived_at;
    const uint64_t work = arrived_at > me.began_at ? arrived_at - me.began_at : 0;
    const int late = 1;  // the late thread is unknown; any number but 0 has the same effect
    if (me.threads > 1 && too_late(me, late, false, now, work)) shrink(now, fallback(me.threads));
    if (pool.threads == pool.limit) extend_trial(now - pool.started_at);
    pool.lateness = me.lateness;
    pool.phase = me.phase;
}

void run_parallel(nk_job job, void *context) {
    pool.started_at = nk_now();
    retry_dropped(pool.started_at);
    const bool fresh = pool.limit > 1 && create_workers();
    pool.job = job;
    pool.context = context;
    store_relaxed(pool.sleep_now, 0u);
    bool chosen[NK_MAX_THREADS] = {};
    bool preempted = false;
    const uint64_t called_at = nk_now();
    pool.threads = wake_workers(pool.limit, chosen, preempted);
    const uint64_t now = nk_now(), waited = now - called_at;
    if (!fresh && waited > kPromptWake)
        pool.lateness += preempted ? (int64_t)waited : weighted_lateness(waited, pool.limit);
    if (pool.lateness > kLatenessBudget) {
        pool.lateness = 0;
        shrink(now, fallback(pool.limit));
    }
    pool.fallback = fallback(pool.threads);
    for (int i = 0; i < pool.size - 1; ++i)
        if (chosen[i]) store_release(workers[i].state, (uint32_t)kRunning);
    run_part(0);
    finish_job();
}

// On thread 0: shrinks the pool after thread `late` arrived last; its worker is dropped first.
void drop_worker(int late, uint64_t now, int threads) {
    for (int i = 0; i < pool.size - 1; ++i)
        if (load_relaxed(workers[i].state) == kRunning && workers[i].number == late)
            pool.late_worker = i;
    shrink(now, threads);
}

void arrive(Participant &me) {
    const int side = (int)(++me.phase & 1);
    const uint64_t now = nk_now(), before = me.preemptions;
    if (now > me.began_at + kLongPhase) me.preemptions = nk_preemptions();
    store_relaxed(me.preempted[side], (uint32_t)(me.preemptions != before));
    store_relaxed(me.arrived_at[side], now);
    store_release(me.arrived[side], me.phase);
}

void wait_for_arrival(const Participant &participant, uint64_t phase) {
    Wait wait;
    while (load_acquire(participant.arrived[phase & 1]) != phase) wait.spin();
}

}  // namespace

void nk_pool_run(nk_job job, void *context) {
    __atomic_store_n(&pool.running, 1u, __ATOMIC_SEQ_CST);
    if (pool.size == 1 || __atomic_load_n(&pool.closing, __ATOMIC_SEQ_CST)) {
        nk_pool_run_serial(job, context);
    } else {
        run_parallel(job, context);
    }
    store_release(pool.running, 0u);
}

void nk_pool_run_serial(nk_job job, void *context) {
    participants[0].threads = 1;
    job(context, 0, 1);
}

int nk_pool_barrier(int thread) {
    Participant &me = participants[thread];
    const int threads = me.threads;
    if (threads == 1) return 1;
    arrive(me);
    const int side = (int)(me.phase & 1);
    uint64_t latest = 0, sum = 0;
    int late = 0;
    for (int i = 0; i < threads; ++i) {
        wait_for_arrival(participants[i], me.phase);
        const uint64_t at = load_relaxed(participants[i].arrived_at[side]);
        if (at > me.began_at) sum += at - me.began_at;
        if (at > latest) latest = at, late = i;
    }
    if (latest > me.began_at) sum -= latest - me.began_at;
    const bool preempted = load_relaxed(participants[late].preempted[side]) != 0;
    if (!too_late(me, late, preempted, latest, sum / (uint64_t)(threads - 1))) return threads;
    me.threads = threads > pool.fallback ? pool.fallback : threads - 1;
    if (thread == 0) drop_worker(late, latest, me.threads);
    if (me.threads == 1) return 1;
    // A dropped thread may still be reading arrival times: wait until no thread can overwrite them.
    arrive(me);
    for (int i = 0; i < threads && thread < me.threads; ++i)
        wait_for_arrival(participants[i], me.phase);
    return me.threads;
}

int nk_pool_resize(int threads) {
    if (threads < 1 || threads > NK_MAX_THREADS) return NK_NO_THREADS;
    end_workers(threads - 1);
    pool.size = threads;
    reset_lateness();
    return NK_OK;
}

int nk_pool_size(void) { return pool.size; }
void nk_pool_idle(void) { store_relaxed(pool.sleep_now, 1u); }
