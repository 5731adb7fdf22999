// Items of an attention: query rows and pages of all segments, split for the balance of threads.
//
// Up to NK_TILE_ROWS query rows of one key/value head are one tile, so that they share the reading
// of each page. Where a tile is much work, its pages are split among several items, whose results
// are stored for each page and merged after a barrier. Results do not depend on the split.
#pragma once
#include "isa/kv_page.h"
#include "isa/table.h"

namespace {

class AttentionPlan {
  public:
    // `threads` must be the same in all plans of a run, whatever number of threads is left.
    AttentionPlan(const nk_table *table, const nk_attend &a, int64_t threads)
        : a_(a), threads_(threads), floats_(table->partial_floats(&a)) {
        for (int64_t i = 0; i < a.count; i++) {
            const Share share = unsplit(a.segments[i]);
            work_ += share.tiles * a.kv_heads * cost(share);
            tiles_ += share.tiles * a.kv_heads;
        }
    }

    int64_t items() const {
        int64_t count = 0;
        for (int64_t i = 0; i < a_.count; i++) count += items_of(share_of(a_.segments[i]));
        return count;
    }
    // Rows that are merged after the items; 0: none.
    int64_t merges() const {
        int64_t count = 0;
        for (int64_t i = 0; i < a_.count; i++)
            if (share_of(a_.segments[i]).ranges > 1) count += a_.segments[i].tokens * a_.heads;
        return count;
    }
    int64_t partial_bytes() const {
        int64_t bytes = 0;
        for (int64_t i = 0; i < a_.count; i++)
            bytes += partial_bytes_of(a_.segments[i], share_of(a_.segments[i]));
        return bytes;
    }
    // Most rows of an item.
    int64_t rows() const {
        int64_t rows = 1;
        for (int64_t i = 0; i < a_.count; i++)
            rows = larger(rows, smaller(a_.segments[i].tokens * group(), NK_TILE_ROWS));
        return rows;
    }
    // Whether each item is a whole key/value head of one token.
    bool items_are_heads() const {
        return a_.count == 1 && a_.segments[0].tokens == 1 && items() == a_.kv_heads &&
               group() <= NK_TILE_ROWS;
    }

    nk_attend_item item(int64_t index, uint8_t *partials) const {
        Place at = place(index, false, partials);
        const Share &share = at.share;
        nk_attend_item item = begin(at);
        const int64_t range = at.index % share.ranges, tile = at.index / share.ranges % share.tiles;
        item.kv = at.index / share.ranges / share.tiles;
        // Later queries attend to more positions: the largest items come first.
        item.row = (share.tiles - 1 - tile) * NK_TILE_ROWS;
        item.rows = smaller(NK_TILE_ROWS, rows_of(*at.segment) - item.row);
        item.first_page = share.first + share.pages * range / share.ranges;
        item.end_page = share.first + share.pages * (range + 1) / share.ranges;
        if (share.ranges > 1) item.partials = partials_of(item, at);
        return item;
    }
    nk_attend_item merge(int64_t index, uint8_t *partials) const {
        Place at = place(index, true, partials);
        nk_attend_item item = begin(at);
        item.kv = at.index / rows_of(*at.segment);
        item.row = at.index % rows_of(*at.segment);
        item.rows = 1;
        item.partials = partials_of(item, at);
        return item;
    }

    // Upper bound of partial_bytes for one segment with any window and up to `threads` threads.
    static int64_t most_partial_bytes(int64_t tokens, int64_t heads, int64_t kv_heads,
                                      int64_t position, int64_t floats, int64_t threads) {
        const int64_t tiles = (tokens * (heads / kv_heads) + NK_TILE_ROWS - 1) / NK_TILE_ROWS;
        if (tiles * kv_heads >= kItems * threads) return 0;
        const int64_t pages = (position + tokens - 1) / NK_PAGE_TOKENS + 1;
        return smaller(kMostBytes, 4 * tokens * heads * pages * floats);
    }

  private:
    static constexpr int64_t kItems = 4;             // wanted items per thread
    static constexpr int64_t kManyPages = 16;        // from here on a split costs little
    static constexpr int64_t kMostBytes = 16 << 20;  // of partial results of a segment

    // How one segment is split.
    struct Share { int64_t tiles, ranges, first, pages; };
    struct Place {
        const nk_segment *segment;
        Share share;
        int64_t token, index;
        uint8_t *partials;
    };

    static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
    static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

    int64_t group() const { return a_.heads / a_.kv_heads; }
    int64_t rows_of(const nk_segment &segment) const { return segment.tokens * group(); }
    int64_t items_of(const Share &share) const { return a_.kv_heads * share.tiles * share.ranges; }
    // Of a tile, in reads of a page; arithmetic of few rows is hidden by the reading.
    int64_t cost(const Share &share) const {
        return share.pages * (8 + (share.tiles > 1 ? NK_TILE_ROWS : 0));
    }
    Share unsplit(const nk_segment &segment) const {
        const int64_t last = (segment.position + segment.tokens - 1) / NK_PAGE_TOKENS;
        const int64_t seen = a_.window ? segment.position - a_.window + 1 : 0;
        const int64_t first = seen > 0 ? seen / NK_PAGE_TOKENS : 0;
        return {(rows_of(segment) + NK_TILE_ROWS - 1) / NK_TILE_ROWS, 1, first, last + 1 - first};
    }
    Share share_of(const nk_segment &segment) const {
        Share share = unsplit(segment);
        const bool balanced = tiles_ % threads_ == 0 && share.pages < kManyPages && a_.count == 1;
        if (threads_ == 1 || tiles_ >= kItems * threads_ * a_.count || balanced) return share;
        const int64_t target = larger(work_ / (kItems * threads_), 1);
        const int64_t ranges = smaller((cost(share) + target - 1) / target, share.pages);
        share.ranges = ranges;
        if (partial_bytes_of(segment, share) > kMostBytes) share.ranges = 1;
        return share;
    }
    int64_t partial_bytes_of(const nk_segment &segment, const Share &share) const {
        return share.ranges > 1 ? 4 * segment.tokens * a_.heads * share.pages * floats_ : 0;
    }

    // The segment of an item or a merge, and the index in it.
    Place place(int64_t index, bool merges, uint8_t *partials) const {
        Place at = {a_.segments, {}, 0, index, partials};
        for (;; at.segment++) {
            at.share = share_of(*at.segment);
            const int64_t count = !merges               ? items_of(at.share)
                                  : at.share.ranges > 1 ? at.segment->tokens * a_.heads
                                                        : 0;
            if (at.index < count) return at;
            at.index -= count;
            at.token += at.segment->tokens;
            at.partials += partial_bytes_of(*at.segment, at.share);
        }
    }
    nk_attend_item begin(const Place &at) const {
        nk_attend_item item = {};
        item.segment = at.segment, item.token = at.token;
        item.partial_first = at.share.first, item.partial_pages = at.share.pages;
        return item;
    }
    float *partials_of(const nk_attend_item &item, const Place &at) const {
        const int64_t row = item.kv * rows_of(*at.segment) + item.row;
        return (float *)at.partials + row * at.share.pages * floats_;
    }

    const nk_attend a_;
    const int64_t threads_, floats_;
    int64_t work_ = 0, tiles_ = 0;
};

}  // namespace
