/* The one representation of a schedule, and the one dependency rule.
 *
 * A schedule is, for each rank, the ordered list of its ops; all ranks' lists
 * stand one after the other in one array. Placement is not stored: (stage,
 * micro-batch) lives on the rank where its forward stands.
 */
#ifndef PS_SCHEDULE_H
#define PS_SCHEDULE_H

#include "ps_base.h"

/* The kinds of work; torch's words are in the comments. The numbers are public
 * (Schedule.ops holds them): add at the end, never renumber. */
typedef enum ps_kind {
    PS_F = 0,           /* F       forward */
    PS_B = 1,           /* B       full backward = I then W */
    PS_I = 2,           /* I       backward for the input */
    PS_W = 3,           /* W       backward for the weights */
    PS_SEND_F = 4,      /* SEND_F  output of F(stage, j) leaves for stage + 1 */
    PS_RECV_F = 5,      /* RECV_F  input of F(stage, j) arrives from stage - 1 */
    PS_SEND_B = 6,      /* SEND_B  input gradient of stage leaves for stage - 1 */
    PS_RECV_B = 7,      /* RECV_B  output gradient of stage arrives from stage + 1 */
    PS_UNSHARD = 8,     /* UNSHARD      micro-batch is -1 */
    PS_RESHARD = 9,     /* RESHARD      micro-batch is -1 */
    PS_REDUCE_GRAD = 10 /* REDUCE_GRAD  micro-batch is -1 */
} ps_kind;

enum { PS_NUM_KINDS = 11, PS_NUM_COMPUTE_KINDS = 4 };

/* One piece of work; 12 bytes, the layout of Schedule.ops in NumPy. */
typedef struct ps_op {
    int32_t stage;
    int32_t microbatch; /* -1 for the kinds that belong to a stage as a whole */
    int16_t kind;       /* ps_kind */
    int16_t fuse;       /* 1: runs together with the next op of this rank as one
                           overlapped pair (torch's OVERLAP_F_B); else 0 */
} ps_op;

_Static_assert(sizeof(ps_op) == 12, "ps_op is the layout of a NumPy dtype");

/* A read-only view; owns nothing. Rank r's ops are ops[offsets[r] .. offsets[r+1]). */
typedef struct ps_schedule {
    const ps_op *ops;         /* offsets[p] of them */
    const int64_t *offsets;   /* p + 1, from 0, not falling */
    int32_t p;                /* ranks, >= 1 */
    int32_t num_stages;       /* >= 1 */
    int32_t num_microbatches; /* >= 1 */
} ps_schedule;

/* Where and what a fault is; filled by whoever returns a PS_ERR_OP_* status.
 * Unused fields are -1. */
typedef struct ps_fault {
    int32_t rank;       /* of the op at fault */
    int64_t position;   /* index of the op at fault in its rank's list, -1: it is missing */
    ps_op op;           /* the op at fault (or the one missing) */
    int32_t other_rank; /* of the other op concerned, if there is one */
    int64_t other_position;
    ps_op other;
} ps_fault;

#endif
