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

/* Length of a rank where each of its micro-batches has a forward and a full backward. */
PS_MUST_CHECK ps_status ps_length_f_b(const ps_config *config, int32_t rank, int64_t *out);

#endif
