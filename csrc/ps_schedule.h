/* The one representation of a schedule, and the one dependency rule.
 *
 * A schedule is, for each rank, the ordered list of its ops; all ranks' lists
 * stand one after the other in one array. Placement is not stored: (stage,
 * micro-batch) lives on the rank where its forward stands.
 *
 * Three words that all users of this file share:
 *   cell   one (stage, micro-batch), numbered stage * num_microbatches + microbatch
 *   lane   what an op is to its cell: forward, backward (B or I), W, or one of the
 *          four communications. A cell has at most one op in each lane
 *   slot   one (lane, cell), numbered lane * cells + cell: the name of an op
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

typedef enum ps_lane {
    PS_LANE_F = 0,
    PS_LANE_B = 1, /* B or I: what hands the gradient on */
    PS_LANE_W = 2,
    PS_LANE_SEND_F = 3,
    PS_LANE_RECV_F = 4,
    PS_LANE_SEND_B = 5,
    PS_LANE_RECV_B = 6
} ps_lane;

enum { PS_NUM_LANES = 7 };

/* The lane of a kind; only for kinds below PS_UNSHARD. */
static inline int32_t ps_kind_lane(int32_t kind)
{
    return kind - (kind >= PS_I);
}

static inline int ps_kind_is_backward(int32_t kind) /* hands a gradient on */
{
    return kind == PS_B || kind == PS_I;
}

static inline int ps_kind_is_comm(int32_t kind)
{
    return kind >= PS_SEND_F && kind <= PS_RECV_B;
}

static inline int ps_kinds_have_comms(uint32_t kinds) /* bit k: kind k is there */
{
    return (kinds >> PS_SEND_F & 0xf) != 0;
}

static inline int ps_op_in_range(const ps_schedule *self, ps_op op)
{
    if ((uint32_t)op.kind >= PS_NUM_KINDS || (uint32_t)op.fuse > 1 ||
        (uint32_t)op.stage >= (uint32_t)self->num_stages)
        return 0;
    if (op.kind >= PS_UNSHARD)
        return op.microbatch == -1;
    return (uint32_t)op.microbatch < (uint32_t)self->num_microbatches;
}

/* Only for an op in range of the kinds below PS_UNSHARD. */
static inline int64_t ps_op_cell(const ps_schedule *self, ps_op op)
{
    return (int64_t)op.stage * self->num_microbatches + op.microbatch;
}

/* ---- THE dependency rule ---------------------------------------------------
 *
 * F(s,j) needs F(s-1,j); B|I(s,j) needs F(s,j) and B|I(s+1,j); W(s,j) needs
 * I(s,j). So a compute op has at most two needs:
 *   its input   the op of its own lane in the next stage towards where it came
 *               from, on any rank; a transfer lies between where the rank differs
 *   its own     the op of the lane below in its own cell, always on its own rank
 * and at most one op, the one of its own lane one stage on, takes its result.
 */

/* The cell whose op, in the same lane, gives this compute op its input; -1: none. */
static inline int64_t ps_input_cell(const ps_schedule *self, ps_op op, int64_t cell)
{
    if (op.kind == PS_F)
        return op.stage > 0 ? cell - self->num_microbatches : -1;
    if (op.kind != PS_W)
        return op.stage + 1 < self->num_stages ? cell + self->num_microbatches : -1;
    return -1;
}

/* The cell whose op, in the same lane, takes this compute op's result; -1: none. */
static inline int64_t ps_output_cell(const ps_schedule *self, ps_op op, int64_t cell)
{
    if (op.kind == PS_F)
        return op.stage + 1 < self->num_stages ? cell + self->num_microbatches : -1;
    if (op.kind != PS_W)
        return op.stage > 0 ? cell - self->num_microbatches : -1;
    return -1;
}

/* The lane of the op of the same cell that must be done before; -1: none. */
static inline int32_t ps_own_lane(int32_t kind)
{
    return kind == PS_F ? -1 : kind == PS_W ? PS_LANE_B : PS_LANE_F;
}

/* The communication that carries a compute lane's result away, and the one that
 * brings a compute lane's input: SEND_F and RECV_F, or SEND_B and RECV_B. */
static inline int32_t ps_send_kind(int32_t lane)
{
    return lane == PS_LANE_F ? PS_SEND_F : PS_SEND_B;
}
static inline int32_t ps_recv_kind(int32_t lane)
{
    return lane == PS_LANE_F ? PS_RECV_F : PS_RECV_B;
}

/* ---- where the stages are -------------------------------------------------- */

/* The rank of every cell. Almost always a stage is on one rank; only where one
 * is on several (bidirectional, replicated) is there a table of cells. */
typedef struct ps_place {
    int32_t *stage_rank; /* num_stages; negative: on several ranks */
    int32_t *cell_rank;  /* num_stages * num_microbatches, or NULL: not needed */
} ps_place;

static inline int32_t ps_place_rank(const ps_place *self, int32_t stage, int64_t cell)
{
    int32_t rank = self->stage_rank[stage];
    return rank >= 0 ? rank : self->cell_rank[cell];
}

/* Find the ranks from the forwards; the ops must be in range. A stage without any
 * forward gets -1 in stage_rank, a cell without one -1 in cell_rank. The arrays belong
 * to it until ps_place_free, which is safe after a failure too. O(ops). */
PS_MUST_CHECK ps_status ps_place_init(ps_place *self, const ps_schedule *schedule);

/* The second half of that, where stage_rank is known: fill cell_rank. */
PS_MUST_CHECK ps_status ps_place_init_cells(ps_place *self, const ps_schedule *schedule);
void ps_place_free(ps_place *self);

/* ---- the index of the ops -------------------------------------------------- */

/* Where each op stands. position[slot] is its place in schedule.ops, -1 where
 * there is none. 4 bytes a slot; lanes that no op uses are not there. */
typedef struct ps_index {
    int64_t cells;     /* num_stages * num_microbatches */
    int32_t lanes;     /* 2: F and B; 3: W too; 7: sends and receives too */
    uint32_t kinds;    /* bit k: kind k is there */
    int32_t *position; /* lanes * cells */
    ps_place place;
} ps_index;

/* Position of the op of a lane in a cell; -1: not there. */
static inline int64_t ps_index_at(const ps_index *self, int32_t lane, int64_t cell)
{
    return lane < self->lanes ? self->position[(int64_t)lane * self->cells + cell] : -1;
}

/* Build the index. All arrays belong to it until ps_index_free, which is safe
 * after a failure too. O(ops).
 * After PS_OK: every op is in range, none is repeated, every cell has its F.
 * Otherwise *fault says where: PS_ERR_OP_RANGE, PS_ERR_OP_PAIR (a fuse without a
 * partner, or three in a row), PS_ERR_OP_REPEATED, PS_ERR_OP_SPLIT (B beside I),
 * PS_ERR_OP_MISSING (a forward).
 * PS_ERR_OVERFLOW from 2^31 ops on. */
PS_MUST_CHECK ps_status ps_index_init(ps_index *self, const ps_schedule *schedule,
                                      ps_fault *fault);
void ps_index_free(ps_index *self);

/* Is every op in range and every overlapped pair two ops? *kinds gets bit k set
 * where kind k stands. PS_ERR_OP_RANGE, PS_ERR_OP_PAIR. O(ops). */
PS_MUST_CHECK ps_status ps_schedule_scan(const ps_schedule *self, uint32_t *kinds,
                                         ps_fault *fault);

/* Does an op stand twice? (UNSHARD, RESHARD and REDUCE_GRAD may.) Needs ops in
 * range, and no table of cells, so that any number of stages and micro-batches
 * can be given. PS_ERR_OP_REPEATED: the second in fault->op, the first in
 * fault->other. O(ops). */
PS_MUST_CHECK ps_status ps_schedule_unique(const ps_schedule *self, ps_fault *fault);

/* The rank of the op at a place in ops. O(log p). */
int32_t ps_schedule_rank(const ps_schedule *self, int64_t position);

/* Clear a fault to "nothing known". */
void ps_fault_clear(ps_fault *self);

/* Set a fault's op (its other op) to the one at a place in ops. */
void ps_fault_set_op(ps_fault *self, const ps_schedule *schedule, int64_t position);
void ps_fault_set_other(ps_fault *self, const ps_schedule *schedule, int64_t position);

#endif
