// Tests the lateness policy of the thread pool in simulated time: threads run phases of `kWork`
// while other programs preempt their cores. Exits with 0 when all cases pass.
#include "run/pool.cpp"

#include <stdio.h>

namespace {

uint64_t seed = 1;

double chance() {  // 0 .. 1
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}

constexpr uint64_t kWork = 300 * kMicrosecond;

// Milliseconds until the lateness budget is exceeded, when in each phase every thread (or only
// thread `only`) is interrupted with probability `taken` for `moment`. 0: not within ten seconds.
int until_too_late(int threads, double taken, uint64_t moment, bool preempted, int only = -1) {
    Participant me = {};
    me.threads = threads;
    uint64_t now = 0;
    while (now < 10000 * kMillisecond) {
        uint64_t longest = 0, sum = 0;
        int late = 0;
        for (int i = 0; i < threads; ++i) {
            const bool stopped = (only < 0 || only == i) && chance() < taken;
            const uint64_t time = kWork + (stopped ? moment : 0);
            sum += time;
            if (time > longest) longest = time, late = i;
        }
        now += longest;
        if (too_late(me, late, preempted, now, (sum - longest) / (uint64_t)(threads - 1)))
            return (int)(now / kMillisecond) + 1;
    }
    return 0;
}

// Whether a probe reports a core busy of which another program uses `slice` of every `period`.
bool core_busy(uint64_t slice, uint64_t period, bool preempted) {
    uint64_t now = (uint64_t)(chance() * (double)period), preemptions = 0;
    Probe probe(now, preemptions);
    while (!probe.done()) {
        now += 2 * kMicrosecond;
        if (now % period < slice) {
            now += slice;
            preemptions += preempted;
        }
        probe.sample(now, preemptions);
    }
    return probe.core_busy();
}

int count_busy(uint64_t slice, uint64_t period, bool preempted) {
    int count = 0;
    for (int i = 0; i < 100; ++i) count += core_busy(slice, period, preempted);
    return count;
}

// A pool with one dropped worker, whose probes are simulated: no worker threads exist here.
struct Trial {
    uint64_t now = 1000 * kMillisecond;

    explicit Trial(int threads) {
        pool.size = threads;
        reset_lateness();
        shrink(now, threads - 1);
    }
    void wait() {
        now = pool.retry_at;
        retry_dropped(now - 1);
        retry_dropped(now);
    }
    void found(bool core_busy) {
        store_relaxed(workers[0].core_busy, (uint32_t)core_busy);
        store_release(workers[0].state, (uint32_t)kIdle);
        now += kProbe;
        retry_dropped(now);
    }
};

int failures = 0;

void expect(const char *what, bool right, int after) {
    if (right) return;
    ++failures;
    printf("%s: %d\n", what, after);
}

}  // namespace

int main() {
    // Another program on a core, in scheduler time slices, about every ten phases.
    int after = until_too_late(2, 0.1, 3 * kMillisecond, true, 1);
    expect("another program on the second core drops its thread soon", after > 0 && after < 200,
           after);
    after = until_too_late(2, 0.1, 3 * kMillisecond, true, 0);
    expect("another program on the first core drops a thread soon", after > 0 && after < 200,
           after);
    after = until_too_late(8, 0.1, 3 * kMillisecond, true, 5);
    expect("another program on one of eight cores drops a thread soon", after > 0 && after < 200,
           after);
    // Another virtual machine uses a fifth of both cores: two threads are still faster than one.
    after = until_too_late(2, 0.02, 4 * kMillisecond, false);
    expect("short preemption by another machine is tolerated", after == 0, after);
    after = until_too_late(2, 0.2, 4 * kMillisecond, false, 0);
    expect("lateness of thread 0 is tolerated: alone it would be as late", after == 0, after);
    // Three quarters of the second core: one thread is faster.
    after = until_too_late(2, 0.2, 8 * kMillisecond, false, 1);
    expect("a core that is mostly unavailable is dropped", after > 0 && after < 1000, after);
    after = until_too_late(2, 0.001, 400 * kMicrosecond, true);
    expect("rare interruptions of two threads are tolerated", after == 0, after);
    after = until_too_late(8, 0.0005, 2 * kMillisecond, true);
    expect("rare interruptions of eight threads are tolerated", after == 0, after);

    after = count_busy(3 * kMillisecond, 6 * kMillisecond, true);
    expect("a probe detects a program that uses half of a core", after == 100, after);
    after = count_busy(5 * kMillisecond, 10 * kMillisecond, true);
    expect("a probe detects it in longer time slices", after == 100, after);
    after = count_busy(2 * kMillisecond, 30 * kMillisecond, true);
    expect("a probe tolerates a short time slice", after == 0, after);
    after = count_busy(50 * kMicrosecond, 200 * kMicrosecond, true);
    expect("a probe ignores interrupts", after == 0, after);
    after = count_busy(5 * kMillisecond, 10 * kMillisecond, false);
    expect("a probe ignores time stolen by another machine", after == 0, after);

    Trial trial(2);
    expect("a busy core shrinks the pool to one thread", pool.limit == 1 && !pool.probing,
           pool.limit);
    trial.wait();
    expect("after the pause it probes, still with one thread", pool.limit == 1 && pool.probing,
           pool.limit);
    expect("the dropped worker is in state probing", workers[0].state == kProbing,
           (int)workers[0].state);
    retry_dropped(trial.now + 100 * kProbe);
    expect("an unfinished probe changes nothing", pool.limit == 1 && pool.probing, pool.limit);
    const uint64_t pause = pool.retry_pause;
    trial.found(true);
    expect("a probe of a busy core starts no trial", pool.limit == 1 && !pool.probing, pool.limit);
    const bool longer = pool.retry_pause == 2 * pause &&
                        pool.retry_at == trial.now + pool.retry_pause;
    expect("a failed probe doubles the pause", longer, (int)(pool.retry_pause / kMillisecond));
    trial.wait();
    trial.found(false);
    expect("a probe of a free core starts a trial", pool.limit == 2 && pool.in_trial, pool.limit);
    shrink(trial.now, fallback(2));
    expect("a failed trial shrinks the pool and doubles the pause",
           pool.limit == 1 && pool.retry_pause == 4 * pause, pool.limit);
    trial.wait();
    trial.found(false);
    extend_trial(kTrial);
    expect("a successful trial resets the policy", pool.limit == 2 && pool.retry_pause == 0,
           pool.limit);

    Trial three(3);
    three.wait();
    expect("a dropped third worker probes", pool.limit == 2 && pool.probing, pool.limit);
    shrink(three.now, 1);
    expect("shrinking again ends the probe", pool.limit == 1 && !pool.probing, pool.limit);
    three.wait();
    const bool both = workers[0].state == kProbing && workers[1].state == kProbing;
    expect("then both dropped workers probe", pool.probing && both, pool.limit);
    printf("%d failures\n", failures);
    return failures != 0;
}
