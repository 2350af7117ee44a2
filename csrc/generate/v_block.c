#include "v_block.h"

#include <stdlib.h>

#include "order.h"
#include "v_loom.h"
#include "v_shape.h"

/* The block of every micro-batch, by slot. */
static void repeat_block(ps_loom *w, int32_t rank, const int32_t offset[4])
{
    ps_item *out = ps_loom_items(w, rank);
    int32_t next[4] = {0};
    for (int64_t i = 0; i < w->count; i++) {
        int best = PS_V_F0;
        int64_t best_slot = INT64_MAX;
        for (int type = PS_V_F0; type <= PS_V_I0; type++) {
            int64_t slot = offset[type] + (int64_t)PS_V_PERIOD * next[type];
            if (next[type] < w->m && slot < best_slot) {
                best = type;
                best_slot = slot;
            }
        }
        out[i] = ps_item_make(best_slot, best, next[best]++);
    }
}

/* Ws into the free slots, each as soon as one is due; 4m items become 6m. */
static void insert_w(ps_loom *w, int32_t rank)
{
    const ps_item *in = ps_loom_items(w, rank);
    ps_item *out = w->items + PS_V_PERIOD * (int64_t)w->m * rank;
    int64_t slot = 0;
    int32_t due = 0;
    for (int64_t i = 0; i < w->count; i++) {
        const ps_item x = in[i];
        for (; due > 0 && slot < x.slot; due--)
            *out++ = ps_item_make(slot++, PS_V_W, 0);
        *out++ = x;
        slot = (int64_t)x.slot + 1;
        due += ps_item_type(x) >= PS_V_I1;
    }
    for (; due > 0; due--)
        *out++ = ps_item_make(slot++, PS_V_W, 0);
}

/* 6m items become 4m. */
static void remove_w(ps_loom *w, int32_t rank)
{
    ps_item *end = w->items + PS_V_PERIOD * (int64_t)w->m * (rank + 1);
    ps_item *out = end;
    for (ps_item *in = end; in > end - w->count;)
        if (ps_item_type(*--in) != PS_V_W)
            *--out = *in;
}

/* Most ops held by a rank whose Ws are in place. */
static int32_t peak_with_w(const ps_loom *w, int32_t rank)
{
    const ps_item *in = ps_loom_items(w, rank);
    int32_t held = 0;
    int32_t most = 0;
    for (int64_t i = 0; i < w->count; i++) {
        const int type = ps_item_type(in[i]);
        held += (type <= PS_V_F1) - (type == PS_V_W);
        most = held > most ? held : most;
    }
    return most;
}

/* Most ops held by a rank whose Ws go wherever a slot is free. */
static int32_t peak_without_w(const ps_loom *w, int32_t rank)
{
    const ps_item *in = ps_loom_items(w, rank);
    int32_t held = 0;
    int32_t due = 0;
    int32_t most = 0;
    for (int64_t i = 0; i < w->count; i++) {
        if (i > 0) {
            const int32_t freed = ps_gap_w(due, in[i - 1].slot, in[i].slot);
            due -= freed;
            held -= freed;
        }
        due += ps_item_type(in[i]) >= PS_V_I1;
        held += ps_item_type(in[i]) <= PS_V_F1;
        most = held > most ? held : most;
    }
    return most;
}

static int32_t peak_of_ranks(const ps_loom *w, int32_t (*peak)(const ps_loom *, int32_t))
{
    int32_t most = 0;
    for (int32_t r = 0; r < w->p; r++) {
        const int32_t here = peak(w, r);
        most = here > most ? here : most;
    }
    return most;
}

static void insert_all_w(ps_loom *w)
{
    for (int32_t r = 0; r < w->p; r++)
        insert_w(w, r);
    w->count = PS_V_PERIOD * (int64_t)w->m;
}

static void remove_all_w(ps_loom *w)
{
    for (int32_t r = 0; r < w->p; r++)
        remove_w(w, r);
    w->count = 4 * (int64_t)w->m;
}

/* Step 5: the ops of one rank with their Ws, chunk 1's first. */
static void write_rank(const ps_loom *w, int32_t rank, ps_op *out)
{
    static const ps_kind kind[] = {
        [PS_V_F0] = PS_F, [PS_V_F1] = PS_F, [PS_V_I1] = PS_I, [PS_V_I0] = PS_I};
    static const int chunk[] = {[PS_V_F0] = 0, [PS_V_F1] = 1, [PS_V_I1] = 1, [PS_V_I0] = 0};
    const int32_t stage[2] = {ps_v_stage(w->p, rank, 0), ps_v_stage(w->p, rank, 1)};
    const ps_item *in = ps_loom_items(w, rank);
    int32_t due[2] = {0};
    int32_t written[2] = {0};
    int64_t slot = 0;
    for (int64_t i = 0; i <= w->count; i++) {
        const int64_t until = i < w->count ? in[i].slot : INT64_MAX;
        for (; slot < until && due[0] + (int64_t)due[1] > 0; slot++) {
            const int c = due[1] > 0;
            out = ps_put(out, stage[c], written[c]++, PS_W);
            due[c]--;
        }
        if (i == w->count)
            break;
        const int type = ps_item_type(in[i]);
        out = ps_put(out, stage[chunk[type]], ps_item_microbatch(in[i]), kind[type]);
        due[chunk[type]] += type >= PS_V_I1;
        slot = until + 1;
    }
}

static void weave(ps_loom *w, ps_v_block_slots *slots)
{
    for (int32_t r = 0; r < w->p; r++) {
        int32_t offset[4];
        slots(w->p, r, offset);
        repeat_block(w, r, offset);
    }
    insert_all_w(w);
    w->peak = peak_of_ranks(w, peak_with_w);
    ps_loom_reorder_with_w(w);
    ps_loom_squeeze(w);
    remove_all_w(w);
    w->peak = peak_of_ranks(w, peak_without_w);
    ps_loom_reorder_without_w(w);
    insert_all_w(w);
    ps_loom_squeeze(w);
    remove_all_w(w);
}

ps_status ps_v_block_length(const ps_config *config, int32_t rank, int64_t *out)
{
    /* Every slot, and 8 codes a micro-batch, in 31 bits. A block is below 6p + 3 slots
     * long. */
    if (8 * (int64_t)config->m + 7 * (int64_t)config->p > INT32_MAX)
        return PS_ERR_OVERFLOW;
    return ps_v_length_split(config, rank, out);
}

ps_status ps_v_block(const ps_config *config, ps_v_block_slots *slots, const int64_t *offsets,
                     ps_op *ops)
{
    enum { ROOMS = 8 };
    ps_loom w = {.p = config->p, .m = config->m, .count = 4 * (int64_t)config->m};
    void *room[ROOMS] = {NULL};
    int64_t pairs; /* of a rank and a micro-batch */
    int64_t items;
    ps_status status = ps_mul(w.p, w.m, &pairs);
    if (status == PS_OK)
        status = ps_mul(PS_V_PERIOD, pairs, &items);
    if (status != PS_OK)
        return status;
    const struct {
        int64_t count;
        size_t size;
    } wanted[ROOMS] = {
        {items, sizeof(ps_item)},     {4 * pairs, sizeof(int32_t)},
        {4 * pairs, sizeof(int32_t)}, {4 * (int64_t)w.p, sizeof(int32_t)},
        {w.p, sizeof(int64_t)},       {w.p, sizeof(int32_t)},
        {w.p, sizeof(int32_t)},       {w.p, sizeof(bool)},
    };
    for (int i = 0; i < ROOMS; i++) {
        status = ps_alloc(wanted[i].count, wanted[i].size, &room[i]);
        if (status != PS_OK)
            goto done;
    }
    w.items = room[0];
    w.slots = room[1];
    w.pending = room[2];
    w.done = room[3];
    w.next = room[4];
    w.tally = room[5];
    w.queue = room[6];
    w.queued = room[7];
    weave(&w, slots);
    for (int32_t r = 0; r < w.p; r++)
        write_rank(&w, r, ops + offsets[r]);
done:
    for (int i = 0; i < ROOMS; i++)
        free(room[i]);
    return status;
}
