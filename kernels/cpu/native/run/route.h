// Expert routing of one token: which experts it passes, and their shares.
#pragma once
#include <math.h>
#include <stdint.h>

#include "api/nk.h"

// Marks the `count` highest of values [size] that are not marked as taken yet, of equal ones the
// first, NaN above all.
inline void nk_take_highest(const float *values, int64_t size, int64_t count, bool *taken) {
    for (int64_t i = 0; i < count; i++) {
        int64_t best = -1;
        for (int64_t e = 0; e < size; e++) {
            if (taken[e]) continue;
            const float value = values[e], most = best < 0 ? value : values[best];
            if (best < 0 || value > most || (value != value && most == most)) best = e;
        }
        taken[best] = true;
    }
}

// Marks the experts of all groups but the best, by the sum of a group's two highest values.
inline void nk_exclude_groups(const float *values, const nk_routing &r, bool *excluded) {
    const int64_t size = r.experts / r.groups, top = size < 2 ? size : 2;
    float sums[NK_MAX_EXPERTS];
    bool kept[NK_MAX_EXPERTS] = {};
    for (int64_t g = 0; g < r.groups; g++) {
        bool taken[NK_MAX_EXPERTS] = {};
        nk_take_highest(values + g * size, size, top, taken);
        sums[g] = 0;
        for (int64_t e = 0; e < size; e++)
            if (taken[e]) sums[g] += values[g * size + e];
    }
    nk_take_highest(sums, r.groups, r.chosen_groups, kept);
    for (int64_t e = 0; e < r.experts; e++) excluded[e] = !kept[e / size];
}

// Softmax of values [count] in place.
inline void nk_softmax(float *values, int64_t count) {
    float highest = values[0], sum = 0;
    for (int64_t i = 1; i < count; i++)
        if (values[i] > highest || values[i] != values[i]) highest = values[i];
    for (int64_t i = 0; i < count; i++) sum += values[i] = expf(values[i] - highest);
    for (int64_t i = 0; i < count; i++) values[i] /= sum;
}

inline float nk_sigmoid(float x) { return 1 / (1 + expf(-x)); }

// The experts of a token by `scores`: their numbers in ascending order, and their shares; see the
// op route in kernels/ops/route.py. The routing must be valid.
inline void nk_route_token(const float *scores, const nk_routing &r, int32_t *numbers,
                           float *shares) {
    constexpr float kLeastSum = 0x1p-14f;  // as in kernels/backend/reference.py
    float values[NK_MAX_EXPERTS], ranked[NK_MAX_EXPERTS];
    for (int64_t e = 0; e < r.experts; e++)
        values[e] = r.gating == NK_GATING_SIGMOID ? nk_sigmoid(scores[e]) : scores[e];
    if (r.gating == NK_GATING_SOFTMAX) nk_softmax(values, r.experts);
    for (int64_t e = 0; e < r.experts; e++) ranked[e] = r.bias ? values[e] + r.bias[e] : values[e];
    bool excluded[NK_MAX_EXPERTS] = {}, taken[NK_MAX_EXPERTS];
    if (r.groups > 1) nk_exclude_groups(ranked, r, excluded);
    for (int64_t e = 0; e < r.experts; e++) taken[e] = excluded[e];
    nk_take_highest(ranked, r.experts, r.chosen, taken);
    float sum = 0;
    for (int64_t e = 0, i = 0; i < r.chosen; e++) {
        if (!taken[e] || excluded[e]) continue;
        numbers[i] = (int32_t)e;
        shares[i++] = r.gating == NK_GATING_SIGMOID_OF_CHOSEN ? nk_sigmoid(values[e]) : values[e];
    }
    if (r.gating == NK_GATING_SOFTMAX_OF_CHOSEN) nk_softmax(shares, r.chosen);
    for (int64_t i = 0; i < r.chosen; i++) sum += shares[i];
    if (sum < kLeastSum) sum = kLeastSum;
    for (int64_t i = 0; i < r.chosen; i++)
        shares[i] = (r.normalized ? shares[i] / sum : shares[i]) * r.scale;
}
