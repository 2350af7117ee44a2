/* The eight steps that DualPipe and DualPipeV share. */
#ifndef PS_DUALPIPE_ORDER_H
#define PS_DUALPIPE_ORDER_H

#include "../ps_generate.h"

/* One rank's part. Lane 0 is the direction whose forward reaches this rank first,
 * lane 1 the other one: the two directions of DualPipe, the two chunks of DualPipeV. */
typedef struct ps_dualpipe_rank {
    int32_t half;     /* ranks from the end of the pipeline to its turn: p/2, or p */
    int32_t depth;    /* this rank's place among them, from 0 */
    int32_t count;    /* micro-batches a lane, >= 2 * half */
    int32_t stage[2]; /* of each lane */
    int32_t first[2]; /* first micro-batch of each lane */
} ps_dualpipe_rank;

/* Ops of such a rank: 4 * count, and one more for each backward that is split. */
int64_t ps_dualpipe_length(int32_t half, int32_t depth, int32_t count);

/* Write them; allocates nothing. */
void ps_dualpipe_order(const ps_dualpipe_rank *rank, ps_op *out);

#endif
