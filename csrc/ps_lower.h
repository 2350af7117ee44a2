/* Sends and receives for a schedule, in an order that cannot deadlock; and its
 * table in unit time.
 *
 * Why the order is safe. Give every transfer a number; if on every rank the sends
 * and receives stand in the order of those numbers, then a rank that waits at one
 * waits for a rank that stands at a lower one, or at work that precedes it, so that
 * no circle can close, whether sends are buffered or block until they are received.
 *
 * Which numbers. The transfers are ordered by the time at which their results are
 * ready when F takes 1, B 2, I 1 and W 1, and by their place in the schedule where
 * that is the same. Each send then stands straight after the op that makes the
 * result. Each receive stands as late as it may: before the op that needs it, or
 * before the first send or receive with a higher number, whichever comes first.
 * A receive is posted and does not hold its rank, and a send stands straight behind
 * its op, so that under any costs the times are those of the schedule without
 * communications.
 */
#ifndef PS_LOWER_H
#define PS_LOWER_H

#include "ps_schedule.h"

/* All functions here take a legal schedule (ps_check) without sends and receives. */

/* When each op ends, in whole units, if the compute kinds take weight[kind] and
 * bookkeeping takes nothing. A pair starts when both members can and both end after
 * the sum of their weights. end: one entry an op, the caller's. PS_ERR_DEADLOCK where
 * the schedule does not come to its end. O(ops). */
PS_MUST_CHECK ps_status ps_lower_ends(const ps_schedule *schedule, const ps_index *index,
                                      const int32_t weight[PS_NUM_COMPUTE_KINDS], int64_t *end);

/* Where each rank's ops begin once lowered: offsets, p + 1 entries, the caller's.
 * PS_ERR_OVERFLOW from 2^31 ops on. O(ops). */
PS_MUST_CHECK ps_status ps_lower_offsets(const ps_schedule *schedule, const ps_index *index,
                                         int64_t *offsets);

/* Write the lowered ops: offsets[p] of them, of ps_lower_offsets. O(ops). */
PS_MUST_CHECK ps_status ps_lower_fill(const ps_schedule *schedule, const ps_index *index,
                                      const int64_t *offsets, ps_op *ops);

/* The table in unit time, every compute op one slot and a pair two in a row:
 * table[rank * slots + slot] is a micro-batch, or -1. end is ps_lower_ends with all
 * weights 1, slots its maximum. O(ops + p * slots). */
void ps_lower_table(const ps_schedule *schedule, const int64_t *end, int64_t slots,
                    int64_t *table);

#endif
