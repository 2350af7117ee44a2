#include "v_block.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "order.h"
#include "v_shape.h"

/* The four ops of the block in the order of their dependencies; a W of either chunk. */
enum { F0, F1, I1, I0, W, PERIOD = 6 };

/* An op in its slot. The four block ops carry type and micro-batch; Ws are counted. */
typedef struct item {
    int32_t slot;
    uint32_t code; /* micro-batch * 8 + type */
} item;

typedef struct loom {
    int32_t p;
    int32_t m;
    int64_t count;     /* items a rank in this pass: 4m, or 6m with the Ws */
    item *items;       /* [rank][6m]; a rank's items end at 6m, by slot */
    int32_t *slots;    /* [rank][type F0..I0][micro-batch]: of the ops done in this pass */
    int32_t *pending;  /* [rank][4m]: Ws due right after each item, in the passes without W */
    int32_t *done;     /* [rank][type F0..I0]: micro-batches done in this pass */
    int64_t *next;     /* [rank]: index of the first item not done in this pass */
    int32_t *tally;    /* [rank]: whatever a pass counts along a rank's items */
    int32_t *queue;    /* ranks that may go on, a ring */
    bool *queued;      /* [rank] */
    int32_t peak;      /* ops held that no rank may exceed */
    int32_t warm_slot; /* rank 0's first I0: the steady state begins */
    int32_t cool_slot; /* the last F0 that counts: it ends at this slot and rank */
    int32_t cool_rank;
} loom;

static inline int type_of(item x)
{
    return (int)(x.code & 7U);
}

static inline int32_t microbatch_of(item x)
{
    return (int32_t)(x.code >> 3);
}

static inline item make_item(int64_t slot, int type, int32_t microbatch)
{
    return (item){(int32_t)slot, (uint32_t)microbatch * 8U + (uint32_t)type};
}

/* What an item of the block adds to the forwards minus the backwards begun. */
static inline int32_t balance_of(item x)
{
    return type_of(x) <= F1 ? 1 : -1;
}

/* A rank's items of this pass; they end at 6m, so that adding and removing Ws never
 * overtakes the reader. */
static inline item *items_of(const loom *w, int32_t rank)
{
    return w->items + PERIOD * (int64_t)w->m * (rank + 1) - w->count;
}

static inline int32_t *slots_of(const loom *w, int32_t rank, int type)
{
    return w->slots + ((int64_t)rank * 4 + type) * w->m;
}

/* ---- passes over one rank ---- */

/* The block of every micro-batch, by slot. */
static void repeat_block(loom *w, int32_t rank, const int32_t offset[4])
{
    item *out = items_of(w, rank);
    int32_t next[4] = {0};
    for (int64_t i = 0; i < w->count; i++) {
        int best = F0;
        int64_t best_slot = INT64_MAX;
        for (int type = F0; type <= I0; type++) {
            int64_t slot = offset[type] + (int64_t)PERIOD * next[type];
            if (next[type] < w->m && slot < best_slot) {
                best = type;
                best_slot = slot;
            }
        }
        out[i] = make_item(best_slot, best, next[best]++);
    }
}

/* Ws into the free slots, each as soon as one is due; 4m items become 6m. */
static void insert_w(loom *w, int32_t rank)
{
    const item *in = items_of(w, rank);
    item *out = w->items + PERIOD * (int64_t)w->m * rank;
    int64_t slot = 0;
    int32_t due = 0;
    for (int64_t i = 0; i < w->count; i++) {
        const item x = in[i];
        for (; due > 0 && slot < x.slot; due--)
            *out++ = make_item(slot++, W, 0);
        *out++ = x;
        slot = (int64_t)x.slot + 1;
        due += type_of(x) >= I1;
    }
    for (; due > 0; due--)
        *out++ = make_item(slot++, W, 0);
}

/* 6m items become 4m. */
static void remove_w(loom *w, int32_t rank)
{
    item *end = w->items + PERIOD * (int64_t)w->m * (rank + 1);
    item *out = end;
    for (item *in = end; in > end - w->count;)
        if (type_of(*--in) != W)
            *--out = *in;
}

/* Most ops held by a rank whose Ws are in place. */
static int32_t peak_with_w(const loom *w, int32_t rank)
{
    const item *in = items_of(w, rank);
    int32_t held = 0;
    int32_t most = 0;
    for (int64_t i = 0; i < w->count; i++) {
        const int type = type_of(in[i]);
        held += (type <= F1) - (type == W);
        most = held > most ? held : most;
    }
    return most;
}

/* Ws done in the gap between two items, if they are done wherever a slot is free. */
static inline int32_t gap_w(int32_t due, int32_t from, int32_t to)
{
    const int32_t gap = to - from - 1;
    return due < gap ? due : gap;
}

/* Most ops held by a rank whose Ws go wherever a slot is free. */
static int32_t peak_without_w(const loom *w, int32_t rank)
{
    const item *in = items_of(w, rank);
    int32_t held = 0;
    int32_t due = 0;
    int32_t most = 0;
    for (int64_t i = 0; i < w->count; i++) {
        if (i > 0) {
            const int32_t freed = gap_w(due, in[i - 1].slot, in[i].slot);
            due -= freed;
            held -= freed;
        }
        due += type_of(in[i]) >= I1;
        held += type_of(in[i]) <= F1;
        most = held > most ? held : most;
    }
    return most;
}

/* ---- passes over all ranks, each in its own order, waiting for its neighbours ---- */

static void set_done(loom *w, int32_t rank, item x)
{
    if (type_of(x) == W)
        return;
    slots_of(w, rank, type_of(x))[microbatch_of(x)] = x.slot;
    w->done[4 * (int64_t)rank + type_of(x)]++;
}

/* The first slot after an op's dependencies, or -1 while one of them is not done.
 * Dependencies are another rank's same op (F0 and I1 come from the rank above, F1 and I0
 * from the one below), this rank's op before it in the block, and the micro-batch before:
 * each type keeps the order of the micro-batches. */
static int64_t first_slot(const loom *w, int32_t rank, item x)
{
    const int type = type_of(x);
    const int32_t j = microbatch_of(x);
    const int32_t other = type == F0 || type == I1 ? rank - 1 : rank + 1;
    int64_t slot = 0;
    if (other >= 0 && other < w->p) {
        if (w->done[4 * (int64_t)other + type] <= j)
            return -1;
        slot = (int64_t)slots_of(w, other, type)[j] + 1;
    }
    if (type > F0 && slots_of(w, rank, type - 1)[j] >= slot)
        slot = (int64_t)slots_of(w, rank, type - 1)[j] + 1;
    if (j > 0 && slots_of(w, rank, type)[j - 1] >= slot)
        slot = (int64_t)slots_of(w, rank, type)[j - 1] + 1;
    return slot;
}

/* A pass over all ranks; `advance` does a rank's next op, or says that it must wait. In
 * a legal order every wait ends, since slots rise along the dependencies. */
static void pass(loom *w, bool (*advance)(loom *, int32_t))
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
static bool squeeze_op(loom *w, int32_t rank)
{
    item *x = items_of(w, rank) + w->next[rank];
    if (type_of(*x) != W) {
        const int64_t slot = first_slot(w, rank, *x);
        if (slot < 0)
            return false;
        if (slot > w->tally[rank])
            w->tally[rank] = (int32_t)slot;
    }
    x->slot = w->tally[rank]++;
    set_done(w, rank, *x);
    return true;
}

static bool before_warm(const loom *w, item x)
{
    return x.slot < w->warm_slot;
}

static bool after_cool(const loom *w, int32_t rank, item x)
{
    return x.slot > w->cool_slot || (x.slot == w->cool_slot && rank > w->cool_rank);
}

/* Where warm-up ends and cool-down begins. With few micro-batches the last F0 of rank 0
 * lies in the warm-up; then the first rank's counts whose last F0 does not, or none. */
static void find_phases(loom *w)
{
    const item *first = items_of(w, 0);
    while (type_of(*first) != I0)
        first++;
    w->warm_slot = first->slot;
    w->cool_slot = INT32_MAX;
    w->cool_rank = w->p;
    for (int32_t r = 0; r < w->p; r++) {
        const item *x = items_of(w, r) + w->count - 1;
        while (type_of(*x) != F0)
            x--;
        if (x->slot >= w->warm_slot && x->slot < w->cool_slot) {
            w->cool_slot = x->slot;
            w->cool_rank = r;
        }
    }
}

/* Index of the first item of [.., end) that stands at or after a slot. */
static int64_t index_of_slot(const item *items, int64_t end, int64_t slot)
{
    while (end > 0 && items[end - 1].slot >= slot)
        end--;
    return end;
}

/* Move item `from` to index `to` <= from and to a slot. */
static void move_item(item *items, int64_t from, int64_t to, int64_t slot)
{
    item x = items[from];
    x.slot = (int32_t)slot;
    memmove(items + to + 1, items + to, (size_t)(from - to) * sizeof *items);
    items[to] = x;
}

/* The slot after the backward whose W is the next one: with q backwards waiting for
 * theirs, the q-th from here. */
static int64_t first_slot_of_w(const loom *w, int32_t rank, const item *items, int64_t k)
{
    const int32_t *done = w->done + 4 * (int64_t)rank;
    int64_t before = done[F0] + (int64_t)done[F1] - w->tally[rank]; /* Ws done */
    int64_t waiting = done[I1] + (int64_t)done[I0] - before;
    int64_t slot = 0;
    int64_t i = k;
    while (waiting > 0) {
        const int type = type_of(items[--i]);
        if (type == I1 || type == I0) {
            waiting--;
        } else if (type == W && slot == 0) {
            slot = (int64_t)items[i].slot + 1; /* Ws keep their order */
        }
    }
    const int64_t after = (int64_t)items[i].slot + 1;
    return after > slot ? after : slot;
}

/* Step 2, one op. The tally is the ops held: forwards minus Ws. */
static bool reorder_with_w(loom *w, int32_t rank)
{
    item *items = items_of(w, rank);
    const int64_t k = w->next[rank];
    const item x = items[k];
    const int type = type_of(x);
    if (before_warm(w, x) || after_cool(w, rank, x)) {
        int64_t slot = type == W ? first_slot_of_w(w, rank, items, k) : first_slot(w, rank, x);
        if (slot < 0)
            return false;
        if (type <= F1) { /* held from there on: only where there is room from then to now */
            int32_t held = w->tally[rank];
            for (int64_t i = k - 1; i >= 0; i--) {
                if (held >= w->peak)
                    slot = (int64_t)items[i + 1].slot + 1;
                if (items[i].slot < slot)
                    break;
                held += (type_of(items[i]) == W) - (type_of(items[i]) <= F1);
            }
        }
        int64_t to = index_of_slot(items, k, slot);
        for (; to < k && items[to].slot == slot; to++)
            slot++;
        if (slot < x.slot)
            move_item(items, k, to, slot);
        set_done(w, rank, slot < x.slot ? items[to] : x);
    } else {
        set_done(w, rank, x);
    }
    w->tally[rank] += (type <= F1) - (type == W);
    return true;
}

/* Ws due right before a slot whose left neighbour is item i-1. */
static int32_t due_before(const loom *w, int32_t rank, const item *items, int64_t i,
                          int64_t slot)
{
    if (i == 0)
        return 0;
    const int32_t due = w->pending[4 * (int64_t)w->m * rank + i - 1];
    return due - gap_w(due, items[i - 1].slot, (int32_t)slot);
}

/* Does item k fit into a free slot before item i, with Ws wherever a slot is then free?
 * What is held is the balance (here: before item i) plus the Ws due. Behind slot k nothing
 * needs a look: the slot that k leaves makes up for the one it takes. */
static bool fits(const loom *w, int32_t rank, const item *items, int64_t k, int64_t i,
                 int64_t slot, int32_t balance)
{
    item x = items[k];
    int32_t due = due_before(w, rank, items, i, slot);
    int32_t last = (int32_t)slot;
    due += type_of(x) >= I1;
    balance += balance_of(x);
    if (type_of(x) <= F1 && balance + due > w->peak)
        return false;
    for (; i < k; i++) {
        due -= gap_w(due, last, items[i].slot);
        last = items[i].slot;
        due += type_of(items[i]) >= I1;
        balance += balance_of(items[i]);
        if (balance + due > w->peak)
            return false;
    }
    return true;
}

/* Step 4, one op. The tally is the balance. */
static bool reorder_without_w(loom *w, int32_t rank)
{
    item *items = items_of(w, rank);
    int32_t *pending = w->pending + 4 * (int64_t)w->m * rank;
    const int64_t k = w->next[rank];
    const item x = items[k];
    int64_t to = k;
    if (after_cool(w, rank, x)) {
        int64_t slot = first_slot(w, rank, x);
        if (slot < 0)
            return false;
        int64_t i = index_of_slot(items, k, slot);
        int32_t balance = w->tally[rank];
        for (int64_t back = i; back < k; back++)
            balance -= balance_of(items[back]);
        for (; slot < x.slot; slot++) {
            if (i < k && items[i].slot == slot) {
                balance += balance_of(items[i++]);
            } else if (fits(w, rank, items, k, i, slot, balance)) {
                move_item(items, k, i, slot);
                to = i;
                break;
            }
        }
    }
    set_done(w, rank, items[to]);
    for (int64_t i = to; i <= k; i++)
        pending[i] = due_before(w, rank, items, i, items[i].slot) + (type_of(items[i]) >= I1);
    w->tally[rank] += balance_of(x);
    return true;
}

/* ---- all of it ---- */

static int32_t peak_of_ranks(const loom *w, int32_t (*peak)(const loom *, int32_t))
{
    int32_t most = 0;
    for (int32_t r = 0; r < w->p; r++) {
        const int32_t here = peak(w, r);
        most = here > most ? here : most;
    }
    return most;
}

static void insert_all_w(loom *w)
{
    for (int32_t r = 0; r < w->p; r++)
        insert_w(w, r);
    w->count = PERIOD * (int64_t)w->m;
}

static void remove_all_w(loom *w)
{
    for (int32_t r = 0; r < w->p; r++)
        remove_w(w, r);
    w->count = 4 * (int64_t)w->m;
}

/* Step 5: the ops of one rank with their Ws, chunk 1's first. */
static void write_rank(const loom *w, int32_t rank, ps_op *out)
{
    static const ps_kind kind[] = {[F0] = PS_F, [F1] = PS_F, [I1] = PS_I, [I0] = PS_I};
    static const int chunk[] = {[F0] = 0, [F1] = 1, [I1] = 1, [I0] = 0};
    const int32_t stage[2] = {ps_v_stage(w->p, rank, 0), ps_v_stage(w->p, rank, 1)};
    const item *in = items_of(w, rank);
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
        const int type = type_of(in[i]);
        out = ps_put(out, stage[chunk[type]], microbatch_of(in[i]), kind[type]);
        due[chunk[type]] += type >= I1;
        slot = until + 1;
    }
}

static void weave(loom *w, ps_v_block_slots *slots)
{
    for (int32_t r = 0; r < w->p; r++) {
        int32_t offset[4];
        slots(w->p, r, offset);
        repeat_block(w, r, offset);
    }
    insert_all_w(w);
    w->peak = peak_of_ranks(w, peak_with_w);
    find_phases(w);
    pass(w, reorder_with_w);
    pass(w, squeeze_op);
    remove_all_w(w);
    w->peak = peak_of_ranks(w, peak_without_w);
    find_phases(w);
    pass(w, reorder_without_w);
    insert_all_w(w);
    pass(w, squeeze_op);
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
    loom w = {.p = config->p, .m = config->m, .count = 4 * (int64_t)config->m};
    void *room[ROOMS] = {NULL};
    int64_t pairs; /* of a rank and a micro-batch */
    int64_t items;
    ps_status status = ps_mul(w.p, w.m, &pairs);
    if (status == PS_OK)
        status = ps_mul(PERIOD, pairs, &items);
    if (status != PS_OK)
        return status;
    const struct {
        int64_t count;
        size_t size;
    } wanted[ROOMS] = {
        {items, sizeof(item)},        {4 * pairs, sizeof(int32_t)},
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
