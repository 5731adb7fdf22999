// What the pool makes of threads that are late, in simulated time: two threads that share phases of
// `kWork`, until one of their cores is taken. Exits with 0 when every case ends as it should.
#include "run/pool.cpp"

#include <stdio.h>

namespace {

uint64_t seed = 1;

double chance() {  // 0 .. 1
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}

constexpr uint64_t kWork = 300 * kMicrosecond;

// Milliseconds until too late, when each phase any of `threads` is stopped with a chance of `taken`
// for `moment`; only thread `only`, if that is one. 0: not within ten seconds.
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

// Whether a core of which another program takes `slice` of every `period` is found core_busy.
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

// What a pool comes to, one of whose cores was found busy, when the worker left out probes. A
// worker that does not exist is one that never begins to sample: its part is played here.
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
    // Another program on a core, in slices as the system deals them, comes every ten phases or so.
    int after = until_too_late(2, 0.1, 3 * kMillisecond, true, 1);
    expect("a program on the other core is left alone soon", after > 0 && after < 200, after);
    after = until_too_late(2, 0.1, 3 * kMillisecond, true, 0);
    expect("so is one on the first core", after > 0 && after < 200, after);
    after = until_too_late(8, 0.1, 3 * kMillisecond, true, 5);
    expect("so is one on one of eight", after > 0 && after < 200, after);
    // A fifth of the time of both cores is another machine's: two threads still do more than one.
    after = until_too_late(2, 0.02, 4 * kMillisecond, false);
    expect("moments that another machine takes are borne", after == 0, after);
    after = until_too_late(2, 0.2, 4 * kMillisecond, false, 0);
    expect("the first core's always, which alone would be as late", after == 0, after);
    // Three quarters of the second core: now one is faster.
    after = until_too_late(2, 0.2, 8 * kMillisecond, false, 1);
    expect("a core that is hardly ever there is left", after > 0 && after < 1000, after);
    after = until_too_late(2, 0.001, 400 * kMicrosecond, true);
    expect("an interruption now and then is nothing", after == 0, after);
    after = until_too_late(8, 0.0005, 2 * kMillisecond, true);
    expect("nor is it to eight threads", after == 0, after);

    after = count_busy(3 * kMillisecond, 6 * kMillisecond, true);
    expect("a probe sees a program that takes half of a core", after == 100, after);
    after = count_busy(5 * kMillisecond, 10 * kMillisecond, true);
    expect("also in longer slices", after == 100, after);
    after = count_busy(2 * kMillisecond, 30 * kMillisecond, true);
    expect("a moment of it is borne", after == 0, after);
    after = count_busy(50 * kMicrosecond, 200 * kMicrosecond, true);
    expect("interruptions are none", after == 0, after);
    after = count_busy(5 * kMillisecond, 10 * kMillisecond, false);
    expect("what another machine takes is left to trying", after == 0, after);

    Trial trial(2);
    expect("one goes on with a busy core", pool.limit == 1 && !pool.probing, pool.limit);
    trial.wait();
    expect("it probes, and goes on with one", pool.limit == 1 && pool.probing, pool.limit);
    expect("the worker is told to", workers[0].state == kProbing, (int)workers[0].state);
    retry_dropped(trial.now + 100 * kProbe);
    expect("who has not looked has found nothing", pool.limit == 1 && pool.probing, pool.limit);
    const uint64_t pause = pool.retry_pause;
    trial.found(true);
    expect("a core_busy core is left alone", pool.limit == 1 && !pool.probing, pool.limit);
    const bool longer = pool.retry_pause == 2 * pause &&
                        pool.retry_at == trial.now + pool.retry_pause;
    expect("for longer", longer, (int)(pool.retry_pause / kMillisecond));
    trial.wait();
    trial.found(false);
    expect("a free one is tried", pool.limit == 2 && pool.in_trial, pool.limit);
    shrink(trial.now, fallback(2));
    expect("in vain: one again, for longer", pool.limit == 1 && pool.retry_pause == 4 * pause,
           pool.limit);
    trial.wait();
    trial.found(false);
    extend_trial(kTrial);
    expect("with success: all is forgotten", pool.limit == 2 && pool.retry_pause == 0, pool.limit);

    Trial three(3);
    three.wait();
    expect("the third probes", pool.limit == 2 && pool.probing, pool.limit);
    shrink(three.now, 1);
    expect("trouble with the second ends that", pool.limit == 1 && !pool.probing, pool.limit);
    three.wait();
    const bool both = workers[0].state == kProbing && workers[1].state == kProbing;
    expect("then both probe", pool.probing && both, pool.limit);
    printf("%d failures\n", failures);
    return failures != 0;
}
