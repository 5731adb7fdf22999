// Expert routing of one token: its highest scores and their softmax.
#pragma once
#include <math.h>
#include <stdint.h>

#include "api/nk.h"

// Of `experts` scores the `chosen` highest, of equal ones the first, NaN above all: their numbers
// in ascending order and their shares, which add up to 1. experts <= NK_MAX_EXPERTS.
inline void nk_route_token(const float *scores, int64_t experts, int64_t chosen, int32_t *numbers,
                           float *shares) {
    bool taken[NK_MAX_EXPERTS] = {};
    float highest = 0;
    for (int64_t i = 0; i < chosen; i++) {
        int64_t best = -1;
        for (int64_t e = 0; e < experts; e++) {
            if (taken[e]) continue;
            const float score = scores[e], most = best < 0 ? score : scores[best];
            if (best < 0 || score > most || (score != score && most == most)) best = e;
        }
        taken[best] = true;
        if (i == 0) highest = scores[best];
    }
    float sum = 0;
    for (int64_t e = 0, i = 0; i < chosen; e++) {
        if (!taken[e]) continue;
        numbers[i] = (int32_t)e;
        shares[i] = expf(scores[e] - highest);
        sum += shares[i++];
    }
    for (int64_t i = 0; i < chosen; i++) shares[i] /= sum;
}
