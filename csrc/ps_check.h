/* Is a schedule complete, legal and free of deadlock?
 *
 * Legal is:
 *   - every op in range, none repeated, every (stage, micro-batch) has its F;
 *   - no backward at all (inference), or each F has a B, or an I and a W, on its
 *     own rank;
 *   - on a rank, no op stands before one it depends on;
 *   - an overlapped pair is one F and one B or I of different cells;
 *   - no sends and receives at all, or exactly those that the placement asks for,
 *     each send after its op and each receive before its op;
 *   - run in their order, the ranks all come to their end. Without sends and
 *     receives an op waits for its input; with them a receive waits for its send,
 *     and, where sends block, a send waits until its receive is reached.
 */
#ifndef PS_CHECK_H
#define PS_CHECK_H

#include "ps_schedule.h"

/* One rank of a waiting cycle: the op where it stands, and the op it waits for,
 * which is on the next rank of the cycle. */
typedef struct ps_wait {
    int32_t rank;
    int64_t position; /* in the rank's list */
    ps_op op;
    int64_t awaited_position; /* in the next rank's list */
    ps_op awaited;
} ps_wait;

/* Check a schedule. PS_OK, or the first fault found as a PS_ERR_OP_* with *fault,
 * or PS_ERR_DEADLOCK with *fault (the first wait) and the cycle; or
 * PS_ERR_OVERFLOW, PS_ERR_MEMORY.
 * cycle: the caller's, p entries; *cycle_length gets how many are filled (0 where
 * there is no deadlock). Without sends and receives `blocking` makes no difference.
 * O(ops) time. Two bytes of memory for each cell where the schedule is legal and has
 * no sends and receives; otherwise the index too. */
PS_MUST_CHECK ps_status ps_check(const ps_schedule *schedule, int blocking, ps_fault *fault,
                                 ps_wait *cycle, int32_t *cycle_length);

#endif
