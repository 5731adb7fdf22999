// What the pool makes of threads that are late, in simulated time: two threads that share phases of
// `kWork`, until one of their cores is taken. Exits with 0 when every case ends as it should.
#include "pool.cpp"

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
    Post me = {};
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

int failures = 0;

void expect(const char *what, bool right, int after) {
    if (right) return;
    ++failures;
    printf("%s: %d ms\n", what, after);
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
    printf("%d failures\n", failures);
    return failures != 0;
}
