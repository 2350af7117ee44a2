/* What the steps of v_block.h work on: every rank's ops in their slots, and passes over
 * them. Internal to the v_*.c files; sizes are checked by ps_v_block. */
#ifndef PS_V_LOOM_H
#define PS_V_LOOM_H

#include <stdbool.h>

#include "../ps_generate.h"

/* The four ops of the block in the order of their dependencies; a W of either chunk. */
enum { PS_V_F0, PS_V_F1, PS_V_I1, PS_V_I0, PS_V_W, PS_V_PERIOD = 6 };

/* An op in its slot. The four block ops carry type and micro-batch; Ws are counted. */
typedef struct ps_item {
    int32_t slot;
    uint32_t code; /* micro-batch * 8 + type */
} ps_item;

typedef struct ps_loom {
    int32_t p;
    int32_t m;
    int64_t count;     /* items a rank in this pass: 4m, or 6m with the Ws */
    ps_item *items;    /* [rank][6m]; a rank's items end at 6m, by slot */
    int32_t *slots;    /* [rank][type F0..I0][micro-batch]: of the ops done in this pass */
    int32_t *pending;  /* [rank][4m]: Ws due right after each item, in the passes without W */
    int32_t *done;     /* [rank][type F0..I0]: micro-batches done in this pass */
    int64_t *next;     /* [rank]: index of the first item not done in this pass */
    int32_t *tally;    /* [rank]: whatever a pass counts along a rank's items */
    int32_t *queue;    /* ranks that may go on, a ring */
    bool *queued;      /* [rank] */
    int32_t peak;      /* ops held that no rank may exceed */
    int32_t warm_slot; /* rank 0's first I0: the steady state begins */
    int32_t cool_slot; /* slot and rank of the last F0 that counts: cool-down follows */
    int32_t cool_rank;
} ps_loom;

static inline int ps_item_type(ps_item x)
{
    return (int)(x.code & 7U);
}

static inline int32_t ps_item_microbatch(ps_item x)
{
    return (int32_t)(x.code >> 3);
}

static inline ps_item ps_item_make(int64_t slot, int type, int32_t microbatch)
{
    return (ps_item){(int32_t)slot, (uint32_t)microbatch * 8U + (uint32_t)type};
}

/* What an item of the block adds to the forwards minus the backwards begun. */
static inline int32_t ps_item_balance(ps_item x)
{
    return ps_item_type(x) <= PS_V_F1 ? 1 : -1;
}

/* A rank's items of this pass; they end at 6m, so that adding and removing Ws never
 * overtakes the reader. */
static inline ps_item *ps_loom_items(const ps_loom *w, int32_t rank)
{
    return w->items + PS_V_PERIOD * (int64_t)w->m * (rank + 1) - w->count;
}

static inline int32_t *ps_loom_slots(const ps_loom *w, int32_t rank, int type)
{
    return w->slots + ((int64_t)rank * 4 + type) * w->m;
}

static inline void ps_loom_set_done(ps_loom *w, int32_t rank, ps_item x)
{
    if (ps_item_type(x) == PS_V_W)
        return;
    ps_loom_slots(w, rank, ps_item_type(x))[ps_item_microbatch(x)] = x.slot;
    w->done[4 * (int64_t)rank + ps_item_type(x)]++;
}

/* Ws done in the gap between two items, if they are done wherever a slot is free. */
static inline int32_t ps_gap_w(int32_t due, int32_t from, int32_t to)
{
    const int32_t gap = to - from - 1;
    return due < gap ? due : gap;
}

/* The first slot after an op's dependencies, or -1 while one of them is not done.
 * Dependencies are another rank's same op (F0 and I1 come from the rank above, F1 and I0
 * from the one below), this rank's op before it in the block, and the micro-batch before:
 * each type keeps the order of the micro-batches. */
int64_t ps_loom_first_slot(const ps_loom *w, int32_t rank, ps_item x);

/* A pass over all ranks; `advance` does a rank's next op, or says that it must wait. In
 * a legal order every wait ends, since slots rise along the dependencies. */
void ps_loom_pass(ps_loom *w, bool (*advance)(ps_loom *, int32_t));

/* Step 3: keep the order, let every op start as soon as it can. */
void ps_loom_squeeze(ps_loom *w);

/* Step 2 and step 4: move the ops of warm-up and cool-down, or of cool-down alone, to
 * earlier slots. w->peak is set. */
void ps_loom_reorder_with_w(ps_loom *w);
void ps_loom_reorder_without_w(ps_loom *w);

#endif
