/* The V schedules with controllable memory: a building block of four ops (F0 F1 I1 I0 of
 * one micro-batch, 0/1 = the rank's chunk) is repeated every six slots, so that in the
 * steady state two slots of six are free for the two Ws; then the order is improved
 * without holding more:
 *
 *  1. repeat the block; put a W into every free slot where one is due.
 *  2. reorder warm-up and cool-down: each op in turn, by time, moves to the earliest free
 *     slot that its dependencies and the peak of step 1 allow. The steady state stands.
 *  3. squeeze: keep the order, let every op start as soon as it can.
 *  4. take the Ws out; reorder the cool-down once more, now with Ws wherever a slot is
 *     free; put the Ws in; squeeze.
 *  5. take the Ws out; put them into the free slots a last time, chunk 1's before
 *     chunk 0's.
 *
 * Warm-up ends with the first I0 of rank 0, cool-down begins after the last F0 of rank 0.
 * The steps are those of the authors' program (sail-sg, v_schedule_greedy). */
#ifndef PS_V_BLOCK_H
#define PS_V_BLOCK_H

#include "../ps_generate.h"

/* The block of one rank: the slots of F0, F1, I1, I0, rising, different modulo 6. */
typedef void ps_v_block_slots(int32_t p, int32_t rank, int32_t slots[4]);

/* Every rank's F, I and W (6m ops a rank); rank r's at ops[offsets[r]]. Linear in the ops
 * but for the reordering, where an op looks at the O(p) ops before it. Scratch: about
 * 13 bytes an op. PS_ERR_MEMORY; PS_ERR_OVERFLOW where the slots do not fit int32. */
PS_MUST_CHECK ps_status ps_v_block(const ps_config *config, ps_v_block_slots *slots,
                                   const int64_t *offsets, ps_op *ops);

/* 6m, as ps_v_length_split, and PS_ERR_OVERFLOW where ps_v_block would say so. */
PS_MUST_CHECK ps_status ps_v_block_length(const ps_config *config, int32_t rank, int64_t *out);

#endif
