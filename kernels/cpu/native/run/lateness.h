// Pool-size policy: lateness budget, dropping of late workers, probes and trials to restore them.
//
// Runs on thread 0, except too_late, which all threads compute from the same arrival times, and
// Probe, which runs on a dropped worker.
#pragma once
#include "run/pool_state.h"

namespace {

void reset_lateness() {
    pool.limit = pool.last_good = pool.size;
    pool.drop_count = 1;
    pool.late_worker = 0;
    pool.probing = pool.in_trial = false;
    pool.retry_pause = pool.retry_at = 0;
    pool.lateness = 0;
}

int fallback(int threads) {
    int fewer = pool.in_trial ? pool.last_good : threads - pool.drop_count;
    if (fewer >= threads) fewer = threads - 1;
    return fewer < 1 ? 1 : fewer;
}

// After a failed probe or trial: doubles the pause before the next one.
void postpone_retry(uint64_t now) {
    pool.retry_pause = pool.retry_pause * 2 < kLongestRetry ? pool.retry_pause * 2 : kLongestRetry;
    pool.retry_at = now + pool.retry_pause;
}

// Limits jobs to `threads` because a core is busy; all threads are retried after a pause.
void shrink(uint64_t now, int threads) {
    if (pool.in_trial) {
        postpone_retry(now);
    } else {
        pool.drop_count *= 2;
        if (pool.retry_pause == 0) pool.retry_pause = kFirstRetry;
        pool.retry_at = now + pool.retry_pause;
    }
    if (threads < pool.last_good) pool.last_good = threads;
    pool.limit = pool.last_good;
    pool.probing = pool.in_trial = false;
}

void start_trial() {
    pool.limit = pool.size;
    pool.in_trial = true;
    pool.trial_time = 0;
    pool.lateness = 0;
}

void start_probes() {
    const int count = pool.size - 1;
    for (int i = 0; i < count; ++i) store_relaxed(workers[i].core_busy, 0u);
    for (int k = pool.limit; k <= count; ++k)
        wake_with_state(workers[(pool.late_worker + k) % count], kProbing);
    pool.probing = true;
}

// Before a job: starts a probe of the dropped workers after the pause, and a trial with all threads
// once every probe found its core free.
void retry_dropped(uint64_t now) {
    if (pool.limit == pool.size || now < pool.retry_at) return;
    if (!pool.probing) return start_probes();
    bool core_busy = false;
    for (int i = 0; i < pool.size - 1; ++i) {
        if (load_acquire(workers[i].state) == kProbing) return;
        if (load_relaxed(workers[i].core_busy)) core_busy = true;
    }
    pool.probing = false;
    if (core_busy) postpone_retry(now);
    else start_trial();
}

void extend_trial(uint64_t time) {
    if (!pool.in_trial) return;
    pool.trial_time += time;
    if (pool.trial_time >= kTrial) reset_lateness();
}

// Weight of lost time when the host of a virtual machine preempted the late thread's core. Decides
// whether fewer threads would be faster: with few threads each does a large share of the work, so
// it may be late more often.
int64_t weighted_lateness(uint64_t lost, int threads) {
    const uint64_t others = (uint64_t)(threads - 1);
    return (int64_t)(others < kRecovery ? lost * others / kRecovery : lost);
}

// Adds one phase to the lateness: thread `late` arrived last, at `latest`; the others worked for
// `work` on average. True: the budget is exceeded.
//
// Lost time is the phase's duration beyond twice the others' work. If another program preempted the
// late thread, all of it counts, because with fewer threads that program has a core free; otherwise
// weighted_lateness applies. Lateness of thread 0 does not count: it would be as late alone.
bool too_late(Participant &me, int late, bool preempted, uint64_t latest, uint64_t work) {
    const uint64_t time = latest > me.began_at ? latest - me.began_at : 0;
    if (time > 2 * work + kTolerance) {
        const uint64_t lost = time - 2 * work;
        if (preempted) me.lateness += (int64_t)lost;
        else if (late > 0) me.lateness += weighted_lateness(lost, me.threads);
    } else {
        me.lateness -= (int64_t)(time / kRecovery);
        if (me.lateness < -kLatenessBudget) me.lateness = -kLatenessBudget;  // limits the credit
    }
    me.began_at = latest;
    if (me.lateness <= kLatenessBudget) return false;
    me.lateness = 0;
    return true;
}

// Measures the share of a core that another program uses, by sampling the clock continuously. Time
// stolen by another virtual machine does not count: the trial after the probe shows its effect.
class Probe {
    uint64_t began_at_, seen_at_, preemptions_, lost_ = 0;

  public:
    Probe(uint64_t now, uint64_t preemptions)
        : began_at_(now), seen_at_(now), preemptions_(preemptions) {}
    void sample(uint64_t now, uint64_t preemptions) {
        if (preemptions != preemptions_ && now - seen_at_ > kTolerance) lost_ += now - seen_at_;
        preemptions_ = preemptions;
        seen_at_ = now;
    }
    bool done() const { return seen_at_ - began_at_ >= kProbe; }
    // Whether lateness would grow; see kRecovery.
    bool core_busy() const { return lost_ > (seen_at_ - began_at_ - lost_) / kRecovery; }
};

}  // namespace
