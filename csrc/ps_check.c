#include "ps_check.h"

#include <stdlib.h>
#include <string.h>

/* ---- running the ranks on their dependencies ------------------------------- */

/* What is known of the result of an op, one byte each. A result is awaited when a
 * rank stands still for it: the only op that can need it is the one of its own lane
 * one stage on, so no list of who waits is needed. */
enum { NOT_YET = 0, AWAITED = 1, DONE = 2 };

/* The results of F and of B|I, with a row of micro-batches that are done before the
 * first stage of F and after the last stage of B, so that the first ops need no
 * branch of their own:
 *     [done] F of stage 0 .. F of stage S-1, B of stage 0 .. B of stage S-1 [done]
 */
typedef struct runner {
    const ps_schedule *schedule;
    const ps_place *place;
    uint8_t *results;
    int64_t base[PS_I + 1]; /* by kind: where the results of stage 0 begin */
    int64_t step[PS_I + 1]; /* by kind: from a result to the one that it needs */
    int64_t *cursor;        /* p: where each rank stands, a place in ops */
    int32_t *ready;         /* p: stack of ranks that may go on */
    int32_t num_ready;
} runner;

/* The scratch of a runner; it is freed by runner_free, after a failure too. */
static ps_status runner_init(runner *self, const ps_schedule *schedule, const ps_place *place)
{
    *self = (runner){.schedule = schedule, .place = place};
    ps_status status = ps_alloc(schedule->p, sizeof *self->cursor, (void **)&self->cursor);
    if (status != PS_OK)
        return status;
    memcpy(self->cursor, schedule->offsets, (size_t)schedule->p * sizeof *self->cursor);
    return ps_alloc(schedule->p, sizeof *self->ready, (void **)&self->ready);
}

static ps_status runner_init_results(runner *self, int64_t num_cells)
{
    int64_t m = self->schedule->num_microbatches;
    /* No overflow: there are no more cells, and so no more micro-batches, than ops. */
    ps_status status = ps_alloc_zeroed(2 * (num_cells + m), 1, (void **)&self->results);
    if (status != PS_OK)
        return status;
    self->base[PS_F] = m;
    self->base[PS_B] = self->base[PS_I] = m + num_cells;
    self->step[PS_F] = -m;
    self->step[PS_B] = self->step[PS_I] = m;
    memset(self->results, DONE, (size_t)m);
    memset(self->results + m + 2 * num_cells, DONE, (size_t)m);
    return PS_OK;
}

static void runner_free(runner *self)
{
    free(self->results);
    free(self->cursor);
    free(self->ready);
}

/* Where the result of an op is; of a kind below W. */
static inline int64_t result_of(const runner *self, const ps_op *op)
{
    return self->base[op->kind] + (int64_t)op->stage * self->schedule->num_microbatches +
           op->microbatch;
}

static inline void finish(runner *self, const ps_op *op, int64_t result)
{
    uint8_t before = self->results[result];
    self->results[result] = DONE;
    if (before == AWAITED) {
        int64_t output = ps_output_cell(self->schedule, *op, ps_op_cell(self->schedule, *op));
        int32_t stage = op->stage + (op->kind == PS_F ? 1 : -1);
        self->ready[self->num_ready++] = ps_place_rank(self->place, stage, output);
    }
}

/* Go on with a rank until it waits or ends; how many places it went forward. */
static int64_t run_rank(runner *self, int32_t rank)
{
    const ps_op *ops = self->schedule->ops;
    int64_t start = self->cursor[rank];
    int64_t end = self->schedule->offsets[rank + 1];
    int64_t i = start;
    while (i < end) {
        const ps_op *op = &ops[i];
        if (op->kind >= PS_W) { /* its I stands before it; bookkeeping waits for nothing */
            i++;
            continue;
        }
        int64_t result = result_of(self, op);
        int64_t input = result + self->step[op->kind];
        if (self->results[input] == DONE && op->fuse) {
            const ps_op *second = op + 1;
            int64_t second_result = result_of(self, second);
            input = second_result + self->step[second->kind];
            if (self->results[input] == DONE) {
                finish(self, second, second_result);
                i++;
            }
        }
        if (self->results[input] != DONE) {
            self->results[input] = AWAITED;
            break;
        }
        finish(self, op, result);
        i++;
    }
    self->cursor[rank] = i;
    return i - start;
}

/* Run all ranks as far as they come; how many ops were left. A rank waits for one
 * op at a time, so it is on the stack at most once. */
static int64_t run_all(runner *self)
{
    int64_t left = self->schedule->offsets[self->schedule->p];
    for (int32_t rank = 0; rank < self->schedule->p; rank++) {
        left -= run_rank(self, rank);
        while (self->num_ready > 0)
            left -= run_rank(self, self->ready[--self->num_ready]);
    }
    return left;
}

/* ---- the fast way: is it legal, yes or no? ---------------------------------- */

/* What has been read of a cell, one byte each: bit k for kind k. */
enum { SEEN_F = 1 << PS_F, SEEN_I = 1 << PS_I };

/* Two neighbours can be an overlapped pair: a forward and a backward, of which
 * neither needs the other, and the second opens no pair itself. */
static int pair_fits(ps_op first, ps_op second)
{
    if (first.stage == second.stage && first.microbatch == second.microbatch)
        return 0;
    return !second.fuse && ((first.kind == PS_F && ps_kind_is_backward(second.kind)) ||
                            (second.kind == PS_F && ps_kind_is_backward(first.kind)));
}

/* How many ops of each compute kind. */
typedef struct counts {
    int64_t f, b, i, w;
} counts;

/* One pass over the ops of a rank: in range, no communication, not repeated, own op
 * before it, pairs in order. 0 where that is not so.
 *
 * That a backward is on the rank of its forward follows from counting: ranks are
 * read in order, each backward's forward has been read and has no other backward,
 * so if every rank has as many backwards as forwards, then rank 0's are all its
 * own, and then rank 1's, and so on. The same goes for W and I. */
static int read_rank(const ps_schedule *s, int32_t rank, uint8_t *cells, int32_t *stage_rank,
                     counts *count, int *several)
{
    /* Exactly this must have been read of the cell before. */
    static const uint8_t before[PS_NUM_COMPUTE_KINDS] = {0, SEEN_F, SEEN_F, SEEN_F | SEEN_I};
    counts here = {0, 0, 0, 0};
    int64_t end = s->offsets[rank + 1];
    for (int64_t i = s->offsets[rank]; i < end; i++) {
        ps_op op = s->ops[i];
        if (!ps_op_in_range(s, op))
            return 0;
        if (op.kind >= PS_NUM_COMPUTE_KINDS) {
            if (ps_kind_is_comm(op.kind) || op.fuse)
                return 0;
            continue;
        }
        uint8_t *seen = &cells[ps_op_cell(s, op)];
        if (*seen != before[op.kind])
            return 0;
        *seen = (uint8_t)(*seen | 1 << op.kind);
        here.f += op.kind == PS_F;
        here.b += op.kind == PS_B;
        here.i += op.kind == PS_I;
        here.w += op.kind == PS_W;
        if (op.kind == PS_F && stage_rank[op.stage] != rank) {
            *several |= stage_rank[op.stage] != -1;
            stage_rank[op.stage] = stage_rank[op.stage] == -1 ? rank : -2;
        }
        if (op.fuse && (i + 1 == end || !pair_fits(op, s->ops[i + 1])))
            return 0;
    }
    *count = here;
    return 1;
}

/* Read all ranks; *legal is 0 where something is wrong, or ops are missing. */
static ps_status read_all(const ps_schedule *s, uint8_t *cells, int64_t num_cells,
                          ps_place *place, int *legal)
{
    counts total = {0, 0, 0, 0};
    int several = 0;
    int even = 1; /* every rank has as many backwards as forwards */
    *legal = 0;
    memset(place->stage_rank, 0xff, (size_t)s->num_stages * sizeof *place->stage_rank);
    for (int32_t rank = 0; rank < s->p; rank++) {
        counts count;
        if (!read_rank(s, rank, cells, place->stage_rank, &count, &several))
            return PS_OK;
        if (count.i != count.w)
            return PS_OK;
        even &= count.f == count.b + count.i;
        total.f += count.f;
        total.b += count.b + count.i;
    }
    if (total.f != num_cells || (!even && total.b > 0))
        return PS_OK;
    *legal = 1;
    return several ? ps_place_init_cells(place, s) : PS_OK;
}

/* *legal: 1 where the schedule has no sends and receives and is legal. */
static ps_status is_legal(const ps_schedule *s, int64_t num_cells, int *legal)
{
    ps_place place = {NULL, NULL};
    uint8_t *cells = NULL;
    runner run = {.schedule = s};
    *legal = 0;
    ps_status status = ps_alloc_zeroed(num_cells, 1, (void **)&cells);
    if (status != PS_OK)
        goto done;
    status = ps_alloc(s->num_stages, sizeof *place.stage_rank, (void **)&place.stage_rank);
    if (status != PS_OK)
        goto done;
    status = read_all(s, cells, num_cells, &place, legal);
    free(cells);
    cells = NULL;
    if (status != PS_OK || !*legal)
        goto done;
    *legal = 0;
    status = runner_init(&run, s, &place);
    if (status == PS_OK)
        status = runner_init_results(&run, num_cells);
    if (status == PS_OK)
        *legal = run_all(&run) == 0;
done:
    runner_free(&run);
    ps_place_free(&place);
    free(cells);
    return status;
}

/* ---- the full way: by the index, fault by fault ----------------------------- */

static ps_status op_fault(const ps_schedule *s, ps_status status, int64_t position,
                          int64_t other, ps_fault *fault)
{
    ps_fault_clear(fault);
    ps_fault_set_op(fault, s, position);
    if (other >= 0)
        ps_fault_set_other(fault, s, other);
    return status;
}

static ps_status missing_fault(const ps_schedule *s, ps_status status, int64_t cell,
                               int32_t kind, int64_t other, ps_fault *fault)
{
    ps_fault_clear(fault);
    fault->op = (ps_op){(int32_t)(cell / s->num_microbatches),
                        (int32_t)(cell % s->num_microbatches), (int16_t)kind, 0};
    ps_fault_set_other(fault, s, other);
    fault->rank = fault->other_rank;
    return status;
}

static int on_rank(const ps_schedule *s, int32_t rank, int64_t position)
{
    return s->offsets[rank] <= position && position < s->offsets[rank + 1];
}

/* Each forward has its backward, whole or in two parts, on its rank. */
static ps_status check_backwards(const ps_schedule *s, const ps_index *index, ps_fault *fault)
{
    if ((index->kinds & (1u << PS_B | 1u << PS_I | 1u << PS_W)) == 0)
        return PS_OK; /* inference */
    for (int64_t cell = 0; cell < index->cells; cell++) {
        int64_t f = ps_index_at(index, PS_LANE_F, cell);
        int64_t b = ps_index_at(index, PS_LANE_B, cell);
        int64_t w = ps_index_at(index, PS_LANE_W, cell);
        if (b < 0 && w < 0)
            return missing_fault(s, PS_ERR_OP_MISSING, cell, PS_B, f, fault);
        if (b < 0)
            return op_fault(s, PS_ERR_OP_SPLIT, w, -1, fault);
        int is_whole = s->ops[b].kind == PS_B;
        if (is_whole && w >= 0)
            return op_fault(s, PS_ERR_OP_SPLIT, w, b, fault);
        if (!is_whole && w < 0)
            return op_fault(s, PS_ERR_OP_SPLIT, b, -1, fault);
        int32_t rank = ps_schedule_rank(s, f);
        if (!on_rank(s, rank, b))
            return op_fault(s, PS_ERR_OP_PLACE, b, f, fault);
        if (w >= 0 && !on_rank(s, rank, w))
            return op_fault(s, PS_ERR_OP_PLACE, w, f, fault);
    }
    return PS_OK;
}

/* Nothing stands before what it depends on, on the same rank; pairs can be pairs. */
static ps_status check_order(const ps_schedule *s, const ps_index *index, ps_fault *fault)
{
    for (int32_t rank = 0; rank < s->p; rank++) {
        int64_t end = s->offsets[rank + 1];
        for (int64_t i = s->offsets[rank]; i < end; i++) {
            ps_op op = s->ops[i];
            if (op.kind < PS_NUM_COMPUTE_KINDS) {
                int64_t cell = ps_op_cell(s, op);
                int32_t own_lane = ps_own_lane(op.kind);
                int64_t own = own_lane < 0 ? -1 : ps_index_at(index, own_lane, cell);
                if (own > i)
                    return op_fault(s, PS_ERR_OP_ORDER, i, own, fault);
                int64_t input_cell = ps_input_cell(s, op, cell);
                int64_t input =
                    input_cell < 0 ? -1 : ps_index_at(index, ps_kind_lane(op.kind), input_cell);
                if (input > i && input < end)
                    return op_fault(s, PS_ERR_OP_ORDER, i, input, fault);
            }
            if (op.fuse && !pair_fits(op, s->ops[i + 1]))
                return op_fault(s, PS_ERR_OP_PAIR, i, i + 1, fault);
        }
    }
    return PS_OK;
}

/* The op that a communication serves, as far as the dependency rule goes. */
static ps_op served_op(ps_op comm)
{
    int forward = comm.kind == PS_SEND_F || comm.kind == PS_RECV_F;
    return (ps_op){comm.stage, comm.microbatch, forward ? PS_F : PS_B, 0};
}

static int is_send(ps_op comm)
{
    return comm.kind == PS_SEND_F || comm.kind == PS_SEND_B;
}

/* Place of the other end of a communication; -1: there is none. */
static int64_t partner(const ps_schedule *s, const ps_index *index, ps_op comm)
{
    ps_op served = served_op(comm);
    int32_t lane = ps_kind_lane(served.kind);
    int64_t cell = ps_op_cell(s, served);
    int64_t other =
        is_send(comm) ? ps_output_cell(s, served, cell) : ps_input_cell(s, served, cell);
    int32_t kind = is_send(comm) ? ps_recv_kind(lane) : ps_send_kind(lane);
    return other < 0 ? -1 : ps_index_at(index, ps_kind_lane(kind), other);
}

/* A communication has a result to carry, and stands on the side of its op where
 * the result is, or is needed. */
static ps_status check_comm(const ps_schedule *s, const ps_index *index, int32_t rank,
                            int64_t position, ps_fault *fault)
{
    ps_op comm = s->ops[position];
    ps_op served = served_op(comm);
    int32_t lane = ps_kind_lane(served.kind);
    int64_t cell = ps_op_cell(s, served);
    int64_t other_cell =
        is_send(comm) ? ps_output_cell(s, served, cell) : ps_input_cell(s, served, cell);
    int64_t here = ps_index_at(index, lane, cell);
    int64_t there = other_cell < 0 ? -1 : ps_index_at(index, lane, other_cell);
    if (here < 0 || there < 0 || on_rank(s, ps_schedule_rank(s, here), there))
        return op_fault(s, PS_ERR_OP_TRANSFER, position, -1, fault);
    int in_order = is_send(comm) ? here < position : position < here;
    if (!on_rank(s, rank, here) || !in_order)
        return op_fault(s, PS_ERR_OP_TRANSFER, position, here, fault);
    return PS_OK;
}

/* A result that comes from another rank has its send and its receive. */
static ps_status check_input(const ps_schedule *s, const ps_index *index, int32_t rank,
                             int64_t position, ps_fault *fault)
{
    ps_op op = s->ops[position];
    int32_t lane = ps_kind_lane(op.kind);
    int64_t cell = ps_op_cell(s, op);
    int64_t from_cell = ps_input_cell(s, op, cell);
    if (from_cell < 0)
        return PS_OK;
    int64_t from = ps_index_at(index, lane, from_cell);
    if (on_rank(s, rank, from))
        return PS_OK;
    if (ps_index_at(index, ps_kind_lane(ps_send_kind(lane)), from_cell) < 0)
        return missing_fault(s, PS_ERR_OP_TRANSFER, from_cell, ps_send_kind(lane), from, fault);
    if (ps_index_at(index, ps_kind_lane(ps_recv_kind(lane)), cell) < 0)
        return missing_fault(s, PS_ERR_OP_TRANSFER, cell, ps_recv_kind(lane), position, fault);
    return PS_OK;
}

static ps_status check_transfers(const ps_schedule *s, const ps_index *index, ps_fault *fault)
{
    for (int32_t rank = 0; rank < s->p; rank++)
        for (int64_t i = s->offsets[rank]; i < s->offsets[rank + 1]; i++) {
            ps_status status = PS_OK;
            if (ps_kind_is_comm(s->ops[i].kind))
                status = check_comm(s, index, rank, i, fault);
            else if (s->ops[i].kind < PS_W)
                status = check_input(s, index, rank, i, fault);
            if (status != PS_OK)
                return status;
        }
    return PS_OK;
}

/* ---- running the ranks on their sends and receives -------------------------- */

/* Go on with a rank until it waits or ends. Everything else than communication is
 * in order on its own rank and waits for nothing. */
static void run_comms(runner *self, const ps_index *index, int blocking, uint8_t *queued,
                      int32_t rank)
{
    const ps_schedule *s = self->schedule;
    int64_t end = s->offsets[rank + 1];
    int64_t *at = &self->cursor[rank];
    for (; *at < end; ++*at) {
        ps_op op = s->ops[*at];
        if (!ps_kind_is_comm(op.kind))
            continue;
        int64_t other = partner(s, index, op);
        int32_t other_rank = ps_schedule_rank(s, other);
        int reached = self->cursor[other_rank] == other; /* the other end stands there */
        if (blocking && !reached)
            return;
        if (!blocking && !is_send(op) && self->cursor[other_rank] <= other)
            return;
        if (!reached)
            continue;
        self->cursor[other_rank] += blocking; /* both go on; buffered, it looks again */
        if (!queued[other_rank]) {
            queued[other_rank] = 1;
            self->ready[self->num_ready++] = other_rank;
        }
    }
}

static ps_status run_all_comms(runner *self, const ps_index *index, int blocking)
{
    int32_t p = self->schedule->p;
    uint8_t *queued;
    ps_status status = ps_alloc_zeroed(p, 1, (void **)&queued);
    if (status != PS_OK)
        return status;
    memset(queued, 1, (size_t)p);
    for (int32_t rank = p; rank-- > 0;)
        self->ready[self->num_ready++] = rank;
    while (self->num_ready > 0) {
        int32_t rank = self->ready[--self->num_ready];
        queued[rank] = 0;
        run_comms(self, index, blocking, queued, rank);
    }
    free(queued);
    return PS_OK;
}

/* ---- the cycle --------------------------------------------------------------- */

/* What a rank that stands still waits for, as a place in ops; *position gets where
 * it stands (of a pair: the member that waits). */
static int64_t awaited_position(const runner *run, const ps_index *index, int32_t rank,
                                int64_t *position)
{
    const ps_schedule *s = run->schedule;
    *position = run->cursor[rank];
    ps_op op = s->ops[*position];
    if (ps_kind_is_comm(op.kind))
        return partner(s, index, op);
    if (run->results[result_of(run, &op) + run->step[op.kind]] == DONE)
        op = s->ops[++*position];
    return ps_index_at(index, ps_kind_lane(op.kind), ps_input_cell(s, op, ps_op_cell(s, op)));
}

/* From any rank that stands still, going from each to the one it waits for comes
 * round to a cycle. */
static ps_status find_cycle(const runner *run, const ps_index *index, ps_fault *fault,
                            ps_wait *cycle, int32_t *cycle_length)
{
    const ps_schedule *s = run->schedule;
    int32_t start = 0;
    while (start < s->p && run->cursor[start] == s->offsets[start + 1])
        start++;
    if (start == s->p)
        return PS_OK;
    int64_t at;
    for (int32_t i = 0; i < s->p; i++) /* after p steps it is in the cycle */
        start = ps_schedule_rank(s, awaited_position(run, index, start, &at));
    int32_t lowest = start;
    int32_t rank = start;
    do {
        rank = ps_schedule_rank(s, awaited_position(run, index, rank, &at));
        lowest = rank < lowest ? rank : lowest;
    } while (rank != start);
    int32_t length = 0;
    rank = lowest;
    do {
        int64_t awaited = awaited_position(run, index, rank, &at);
        int32_t next = ps_schedule_rank(s, awaited);
        cycle[length++] = (ps_wait){rank, at - s->offsets[rank], s->ops[at],
                                    awaited - s->offsets[next], s->ops[awaited]};
        rank = next;
    } while (rank != lowest);
    *cycle_length = length;
    at = s->offsets[lowest] + cycle[0].position;
    return op_fault(s, PS_ERR_DEADLOCK, at,
                    s->offsets[cycle[length > 1 ? 1 : 0].rank] + cycle[0].awaited_position,
                    fault);
}

static ps_status check_deadlock(const ps_schedule *s, const ps_index *index, int blocking,
                                ps_fault *fault, ps_wait *cycle, int32_t *cycle_length)
{
    runner run;
    ps_status status = runner_init(&run, s, &index->place);
    if (status != PS_OK)
        goto done;
    if (ps_kinds_have_comms(index->kinds)) {
        status = run_all_comms(&run, index, blocking);
    } else {
        status = runner_init_results(&run, index->cells);
        if (status == PS_OK)
            (void)run_all(&run);
    }
    if (status == PS_OK)
        status = find_cycle(&run, index, fault, cycle, cycle_length);
done:
    runner_free(&run);
    return status;
}

static ps_status check_all(const ps_schedule *s, int blocking, ps_fault *fault, ps_wait *cycle,
                           int32_t *cycle_length)
{
    ps_index index;
    ps_status status = ps_index_init(&index, s, fault);
    if (status != PS_OK)
        return status;
    status = check_backwards(s, &index, fault);
    if (status == PS_OK)
        status = check_order(s, &index, fault);
    if (status == PS_OK && ps_kinds_have_comms(index.kinds))
        status = check_transfers(s, &index, fault);
    if (status == PS_OK)
        status = check_deadlock(s, &index, blocking, fault, cycle, cycle_length);
    ps_index_free(&index);
    return status;
}

ps_status ps_check(const ps_schedule *schedule, int blocking, ps_fault *fault, ps_wait *cycle,
                   int32_t *cycle_length)
{
    *cycle_length = 0;
    ps_fault_clear(fault);
    int64_t num_cells = (int64_t)schedule->num_stages * schedule->num_microbatches;
    if (num_cells <= schedule->offsets[schedule->p]) {
        int legal;
        ps_status status = is_legal(schedule, num_cells, &legal);
        if (status != PS_OK || legal)
            return status;
    }
    /* Sends and receives, or something is wrong: say what. */
    return check_all(schedule, blocking, fault, cycle, cycle_length);
}
