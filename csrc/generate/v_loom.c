#include "v_loom.h"

#include <string.h>

int64_t ps_loom_first_slot(const ps_loom *w, int32_t rank, ps_item x)
{
    const int type = ps_item_type(x);
    const int32_t j = ps_item_microbatch(x);
    const int32_t other = type == PS_V_F0 || type == PS_V_I1 ? rank - 1 : rank + 1;
    int64_t slot = 0;
    if (other >= 0 && other < w->p) {
        if (w->done[4 * (int64_t)other + type] <= j)
            return -1;
        slot = (int64_t)ps_loom_slots(w, other, type)[j] + 1;
    }
    if (type > PS_V_F0 && ps_loom_slots(w, rank, type - 1)[j] >= slot)
        slot = (int64_t)ps_loom_slots(w, rank, type - 1)[j] + 1;
    if (j > 0 && ps_loom_slots(w, rank, type)[j - 1] >= slot)
        slot = (int64_t)ps_loom_slots(w, rank, type)[j - 1] + 1;
    return slot;
}

void ps_loom_pass(ps_loom *w, bool (*advance)(ps_loom *, int32_t))
{
    int32_t head = 0;
    int32_t length = w->p;
    memset(w->done, 0, (size_t)w->p * 4 * sizeof *w->done);
    for (int32_t r = 0; r < w->p; r++) {
        w->next[r] = 0;
        w->tally[r] = 0;
        w->queue[r] = r;
        w->queued[r] = true;
    }
    while (length > 0) {
        const int32_t rank = w->queue[head];
        head = head + 1 < w->p ? head + 1 : 0;
        length--;
        w->queued[rank] = false;
        const int64_t before = w->next[rank];
        while (w->next[rank] < w->count && advance(w, rank))
            w->next[rank]++;
        if (w->next[rank] == before)
            continue;
        for (int32_t other = rank - 1; other <= rank + 1; other += 2) {
            if (other < 0 || other >= w->p || w->queued[other])
                continue;
            const int64_t at = (int64_t)head + length;
            w->queue[at < w->p ? at : at - w->p] = other;
            w->queued[other] = true;
            length++;
        }
    }
}

/* Start as soon as possible in the order that stands; one slot an op. The tally is the
 * rank's first free slot. */
static bool squeeze_op(ps_loom *w, int32_t rank)
{
    ps_item *x = ps_loom_items(w, rank) + w->next[rank];
    if (ps_item_type(*x) != PS_V_W) {
        const int64_t slot = ps_loom_first_slot(w, rank, *x);
        if (slot < 0)
            return false;
        if (slot > w->tally[rank])
            w->tally[rank] = (int32_t)slot;
    }
    x->slot = w->tally[rank]++;
    ps_loom_set_done(w, rank, *x);
    return true;
}

void ps_loom_squeeze(ps_loom *w)
{
    ps_loom_pass(w, squeeze_op);
}
