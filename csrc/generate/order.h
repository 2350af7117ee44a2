/* Orders that several families share. All write one rank's ops and allocate nothing. */
#ifndef PS_ORDER_H
#define PS_ORDER_H

#include "../ps_generate.h"

/* Write one op; returns the place of the next. */
static inline ps_op *ps_put(ps_op *out, int32_t stage, int32_t microbatch, ps_kind kind)
{
    *out = (ps_op){stage, microbatch, (int16_t)kind, 0};
    return out + 1;
}

/* Forwards, or any one kind, of micro-batches 0 .. count-1; returns the place of the next op.
 */
ps_op *ps_order_run(ps_op *out, int32_t stage, int32_t count, ps_kind kind);

/* 1F1B over the count micro-batches first, first + step, first + 2 step, ...:
 * min(warmup, count) forwards, then (F, B) pairs, then the backwards left over.
 * 2 * count ops. A step above 1 is a replica's share of a replicated stage. */
void ps_order_1f1b(ps_op *out, int32_t stage, int32_t first, int32_t step, int32_t count,
                   int64_t warmup);

/* A walk through the table of an interleaved order: for each group of micro-batches,
 * for each chunk, for each micro-batch of the group. The last group may be shorter. */
typedef struct ps_table_walk {
    int32_t m;
    int32_t v;
    int32_t group;
    int32_t first; /* of the group */
    int32_t last;  /* of the group */
    int32_t chunk;
    int32_t microbatch;
} ps_table_walk;

static inline ps_table_walk ps_table_start(int32_t m, int32_t v, int32_t group)
{
    return (ps_table_walk){m, v, group, 0, (group < m ? group : m) - 1, 0, 0};
}

static inline void ps_table_step(ps_table_walk *walk)
{
    if (walk->microbatch < walk->last) {
        walk->microbatch++;
        return;
    }
    if (++walk->chunk == walk->v) {
        walk->chunk = 0;
        walk->first = walk->last + 1;
        walk->last =
            walk->group < walk->m - walk->first ? walk->last + walk->group : walk->m - 1;
    }
    walk->microbatch = walk->first;
}

/* The smallest group of p to m micro-batches that leaves no remainder below p, which is
 * Megatron's rule; m where m < p. Wherever torch's rule takes m, it is torch's group. */
int32_t ps_default_group(const ps_config *config);

/* Interleaved 1F1B of one rank: forwards follow the table, backwards the same table
 * with the chunks in reverse. min(warmup, m * v) forwards, then (F, B) pairs, then the
 * backwards left over. Chunk c is stage c * p + rank. 2 * m * v ops. */
void ps_order_interleaved(ps_op *out, int32_t rank, const ps_config *config, int32_t v,
                          int32_t group, int64_t warmup);

/* The same order with the backward split: the oldest W still missing follows every I but
 * the first `behind`; the Ws left over stand at the end. 3 * m * v ops. */
void ps_order_interleaved_split(ps_op *out, int32_t rank, const ps_config *config, int32_t v,
                                int32_t group, int64_t warmup, int64_t behind);

/* *out = factor * m * v, the ops of a rank. */
PS_MUST_CHECK ps_status ps_length_m_v(const ps_config *config, int32_t factor, int32_t v,
                                      int64_t *out);

/* Length of a rank where each of its micro-batches has a forward and a full backward. */
PS_MUST_CHECK ps_status ps_length_f_b(const ps_config *config, int32_t rank, int64_t *out);

/* Length of a rank where each of its micro-batches has a forward, an I and a W. */
PS_MUST_CHECK ps_status ps_length_f_i_w(const ps_config *config, int32_t rank, int64_t *out);

#endif
