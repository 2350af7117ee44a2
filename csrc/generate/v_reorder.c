/* Steps 2 and 4 of v_block.h: reordering the ends of the pipeline. */
#include <string.h>

#include "v_loom.h"

static bool before_warm(const ps_loom *w, ps_item x)
{
    return x.slot < w->warm_slot;
}

static bool after_cool(const ps_loom *w, int32_t rank, ps_item x)
{
    return x.slot > w->cool_slot || (x.slot == w->cool_slot && rank > w->cool_rank);
}

/* Where warm-up ends and cool-down begins. With few micro-batches the last F0 of rank 0
 * lies in the warm-up; then the first rank's counts whose last F0 does not, or none. */
static void find_phases(ps_loom *w)
{
    const ps_item *first = ps_loom_items(w, 0);
    while (ps_item_type(*first) != PS_V_I0)
        first++;
    w->warm_slot = first->slot;
    w->cool_slot = INT32_MAX;
    w->cool_rank = w->p;
    for (int32_t r = 0; r < w->p; r++) {
        const ps_item *x = ps_loom_items(w, r) + w->count - 1;
        while (ps_item_type(*x) != PS_V_F0)
            x--;
        if (x->slot >= w->warm_slot && x->slot < w->cool_slot) {
            w->cool_slot = x->slot;
            w->cool_rank = r;
        }
    }
}

/* Index of the first item of [.., end) that stands at or after a slot. */
static int64_t index_of_slot(const ps_item *items, int64_t end, int64_t slot)
{
    while (end > 0 && items[end - 1].slot >= slot)
        end--;
    return end;
}

/* Move item `from` to index `to` <= from and to a slot. */
static void move_item(ps_item *items, int64_t from, int64_t to, int64_t slot)
{
    ps_item x = items[from];
    x.slot = (int32_t)slot;
    memmove(items + to + 1, items + to, (size_t)(from - to) * sizeof *items);
    items[to] = x;
}

/* The slot after the backward whose W is the next one: with q backwards waiting for
 * theirs, the q-th from here. */
static int64_t first_slot_of_w(const ps_loom *w, int32_t rank, const ps_item *items, int64_t k)
{
    const int32_t *done = w->done + 4 * (int64_t)rank;
    int64_t before = done[PS_V_F0] + (int64_t)done[PS_V_F1] - w->tally[rank]; /* Ws done */
    int64_t waiting = done[PS_V_I1] + (int64_t)done[PS_V_I0] - before;
    int64_t slot = 0;
    int64_t i = k;
    while (waiting > 0) {
        const int type = ps_item_type(items[--i]);
        if (type == PS_V_I1 || type == PS_V_I0) {
            waiting--;
        } else if (type == PS_V_W && slot == 0) {
            slot = (int64_t)items[i].slot + 1; /* Ws keep their order */
        }
    }
    const int64_t after = (int64_t)items[i].slot + 1;
    return after > slot ? after : slot;
}

/* Step 2, one op. The tally is the ops held: forwards minus Ws. */
static bool reorder_with_w(ps_loom *w, int32_t rank)
{
    ps_item *items = ps_loom_items(w, rank);
    const int64_t k = w->next[rank];
    const ps_item x = items[k];
    const int type = ps_item_type(x);
    if (before_warm(w, x) || after_cool(w, rank, x)) {
        int64_t slot = type == PS_V_W ? first_slot_of_w(w, rank, items, k)
                                      : ps_loom_first_slot(w, rank, x);
        if (slot < 0)
            return false;
        if (type <=
            PS_V_F1) { /* held from there on: only where there is room from then to now */
            int32_t held = w->tally[rank];
            for (int64_t i = k - 1; i >= 0; i--) {
                if (held >= w->peak)
                    slot = (int64_t)items[i + 1].slot + 1;
                if (items[i].slot < slot)
                    break;
                held +=
                    (ps_item_type(items[i]) == PS_V_W) - (ps_item_type(items[i]) <= PS_V_F1);
            }
        }
        int64_t to = index_of_slot(items, k, slot);
        for (; to < k && items[to].slot == slot; to++)
            slot++;
        if (slot < x.slot)
            move_item(items, k, to, slot);
        ps_loom_set_done(w, rank, slot < x.slot ? items[to] : x);
    } else {
        ps_loom_set_done(w, rank, x);
    }
    w->tally[rank] += (type <= PS_V_F1) - (type == PS_V_W);
    return true;
}

/* Ws due right before a slot whose left neighbour is item i-1. */
static int32_t due_before(const ps_loom *w, int32_t rank, const ps_item *items, int64_t i,
                          int64_t slot)
{
    if (i == 0)
        return 0;
    const int32_t due = w->pending[4 * (int64_t)w->m * rank + i - 1];
    return due - ps_gap_w(due, items[i - 1].slot, (int32_t)slot);
}

/* Does item k fit into a free slot before item i, with Ws wherever a slot is then free?
 * What is held is the balance (here: before item i) plus the Ws due. Behind slot k nothing
 * needs a look: the slot that k leaves makes up for the one it takes. */
static bool fits(const ps_loom *w, int32_t rank, const ps_item *items, int64_t k, int64_t i,
                 int64_t slot, int32_t balance)
{
    ps_item x = items[k];
    int32_t due = due_before(w, rank, items, i, slot);
    int32_t last = (int32_t)slot;
    due += ps_item_type(x) >= PS_V_I1;
    balance += ps_item_balance(x);
    if (ps_item_type(x) <= PS_V_F1 && balance + due > w->peak)
        return false;
    for (; i < k; i++) {
        due -= ps_gap_w(due, last, items[i].slot);
        last = items[i].slot;
        due += ps_item_type(items[i]) >= PS_V_I1;
        balance += ps_item_balance(items[i]);
        if (balance + due > w->peak)
            return false;
    }
    return true;
}

/* Step 4, one op. The tally is the balance. */
static bool reorder_without_w(ps_loom *w, int32_t rank)
{
    ps_item *items = ps_loom_items(w, rank);
    int32_t *pending = w->pending + 4 * (int64_t)w->m * rank;
    const int64_t k = w->next[rank];
    const ps_item x = items[k];
    int64_t to = k;
    if (after_cool(w, rank, x)) {
        int64_t slot = ps_loom_first_slot(w, rank, x);
        if (slot < 0)
            return false;
        int64_t i = index_of_slot(items, k, slot);
        int32_t balance = w->tally[rank];
        for (int64_t back = i; back < k; back++)
            balance -= ps_item_balance(items[back]);
        for (; slot < x.slot; slot++) {
            if (i < k && items[i].slot == slot) {
                balance += ps_item_balance(items[i++]);
            } else if (fits(w, rank, items, k, i, slot, balance)) {
                move_item(items, k, i, slot);
                to = i;
                break;
            }
        }
    }
    ps_loom_set_done(w, rank, items[to]);
    for (int64_t i = to; i <= k; i++)
        pending[i] =
            due_before(w, rank, items, i, items[i].slot) + (ps_item_type(items[i]) >= PS_V_I1);
    w->tally[rank] += ps_item_balance(x);
    return true;
}

void ps_loom_reorder_with_w(ps_loom *w)
{
    find_phases(w);
    ps_loom_pass(w, reorder_with_w);
}

void ps_loom_reorder_without_w(ps_loom *w)
{
    find_phases(w);
    ps_loom_pass(w, reorder_without_w);
}
