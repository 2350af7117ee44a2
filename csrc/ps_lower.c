#include "ps_lower.h"

#include <stdlib.h>
#include <string.h>

/* ---- times ------------------------------------------------------------------ */

enum { NOT_YET = -1, AWAITED = -2 }; /* in end[]: a rank stands still for this op */

typedef struct clock {
    const ps_schedule *schedule;
    const ps_index *index;
    const int32_t *weight;
    int64_t *end;
    int64_t *cursor; /* p: where each rank stands */
    int32_t *ready;  /* p: stack of ranks that may go on */
    uint8_t *queued; /* p: is on the stack */
    int32_t num_ready;
} clock;

/* Place of the op that gives a compute op its input; -1: it needs none. */
static int64_t input_position(const ps_schedule *s, const ps_index *index, ps_op op)
{
    if (op.kind >= PS_W)
        return -1;
    int64_t input = ps_input_cell(s, op, ps_op_cell(s, op));
    return input < 0 ? -1 : ps_index_at(index, ps_kind_lane(op.kind), input);
}

/* Place of the op that takes a compute op's result; -1: none does. */
static int64_t output_position(const ps_schedule *s, const ps_index *index, ps_op op)
{
    if (op.kind >= PS_W)
        return -1;
    int64_t output = ps_output_cell(s, op, ps_op_cell(s, op));
    return output < 0 ? -1 : ps_index_at(index, ps_kind_lane(op.kind), output);
}

static int wait_for(clock *self, int64_t input, int64_t *start)
{
    if (input < 0)
        return 0;
    int64_t end = self->end[input];
    if (end < 0) {
        self->end[input] = AWAITED;
        return 1;
    }
    *start = end > *start ? end : *start;
    return 0;
}

static void finish(clock *self, int64_t position, int64_t end)
{
    int64_t before = self->end[position];
    self->end[position] = end;
    if (before != AWAITED)
        return;
    int64_t output =
        output_position(self->schedule, self->index, self->schedule->ops[position]);
    int32_t rank = ps_schedule_rank(self->schedule, output);
    if (!self->queued[rank]) {
        self->queued[rank] = 1;
        self->ready[self->num_ready++] = rank;
    }
}

/* Go on with a rank until it waits or ends; how many places it went forward. */
static int64_t run_rank(clock *self, int32_t rank)
{
    const ps_schedule *s = self->schedule;
    int64_t first = s->offsets[rank];
    int64_t from = self->cursor[rank];
    int64_t i = from;
    int64_t now = i > first ? self->end[i - 1] : 0;
    while (i < s->offsets[rank + 1]) {
        ps_op op = s->ops[i];
        int64_t duration = op.kind < PS_NUM_COMPUTE_KINDS ? self->weight[op.kind] : 0;
        int64_t start = now;
        if (wait_for(self, input_position(s, self->index, op), &start))
            break;
        if (op.fuse) {
            ps_op second = s->ops[i + 1];
            if (wait_for(self, input_position(s, self->index, second), &start))
                break;
            duration += second.kind < PS_NUM_COMPUTE_KINDS ? self->weight[second.kind] : 0;
        }
        now = start + duration;
        finish(self, i++, now);
        if (op.fuse)
            finish(self, i++, now);
    }
    self->cursor[rank] = i;
    return i - from;
}

ps_status ps_lower_ends(const ps_schedule *schedule, const ps_index *index,
                        const int32_t weight[PS_NUM_COMPUTE_KINDS], int64_t *end)
{
    clock run = {schedule, index, weight, end, NULL, NULL, NULL, 0};
    int32_t p = schedule->p;
    int64_t left = schedule->offsets[p];
    ps_status status = ps_alloc(p, sizeof *run.cursor, (void **)&run.cursor);
    if (status != PS_OK)
        goto done;
    status = ps_alloc(p, sizeof *run.ready, (void **)&run.ready);
    if (status != PS_OK)
        goto done;
    status = ps_alloc_zeroed(p, 1, (void **)&run.queued);
    if (status != PS_OK)
        goto done;
    for (int64_t i = 0; i < left; i++)
        end[i] = NOT_YET;
    memcpy(run.cursor, schedule->offsets, (size_t)p * sizeof *run.cursor);
    for (int32_t rank = 0; rank < p; rank++) {
        left -= run_rank(&run, rank);
        while (run.num_ready > 0) {
            int32_t next = run.ready[--run.num_ready];
            run.queued[next] = 0;
            left -= run_rank(&run, next);
        }
    }
    if (left != 0)
        status = PS_ERR_DEADLOCK;
done:
    free(run.cursor);
    free(run.ready);
    free(run.queued);
    return status;
}

/* ---- the table in unit time --------------------------------------------------- */

void ps_lower_table(const ps_schedule *schedule, const int64_t *end, int64_t slots,
                    int64_t *table)
{
    for (int32_t rank = 0; rank < schedule->p; rank++) {
        int64_t *row = table + rank * slots;
        for (int64_t slot = 0; slot < slots; slot++)
            row[slot] = -1;
        for (int64_t i = schedule->offsets[rank]; i < schedule->offsets[rank + 1]; i++) {
            ps_op op = schedule->ops[i];
            if (op.kind < PS_NUM_COMPUTE_KINDS)
                row[end[i] - 1 - op.fuse] = op.microbatch; /* a pair's first one before */
        }
    }
}

/* ---- sends and receives ------------------------------------------------------- */

/* A transfer is known by the place of the op that makes its result, its source. */

static int on_rank(const ps_schedule *s, int32_t rank, int64_t position)
{
    return s->offsets[rank] <= position && position < s->offsets[rank + 1];
}

/* Source of the transfer that an op needs (rank: where it stands); -1: none. */
static int64_t needed(const ps_schedule *s, const ps_index *index, int32_t rank, ps_op op)
{
    int64_t source = input_position(s, index, op);
    return source < 0 || on_rank(s, rank, source) ? -1 : source;
}

/* Does the result of an op leave its rank? */
static int leaves(const ps_schedule *s, const ps_index *index, int32_t rank, ps_op op)
{
    int64_t consumer = output_position(s, index, op);
    return consumer >= 0 && !on_rank(s, rank, consumer);
}

ps_status ps_lower_offsets(const ps_schedule *schedule, const ps_index *index, int64_t *offsets)
{
    int64_t count = 0;
    offsets[0] = 0;
    for (int32_t rank = 0; rank < schedule->p; rank++) {
        for (int64_t i = schedule->offsets[rank]; i < schedule->offsets[rank + 1]; i++) {
            ps_op op = schedule->ops[i];
            count += 1 + (needed(schedule, index, rank, op) >= 0);
            count += leaves(schedule, index, rank, op);
        }
        offsets[rank + 1] = count;
    }
    return count <= INT32_MAX ? PS_OK : PS_ERR_OVERFLOW;
}

/* The receives of each rank in the order of the transfers: received[first[rank] ..
 * first[rank + 1]) are their sources. Two counting sorts: by time, then by rank. */
static ps_status order_receives(const ps_schedule *s, const ps_index *index, const int64_t *end,
                                int64_t *first, int32_t *received)
{
    int64_t num_ops = s->offsets[s->p];
    int64_t last = 0;
    for (int64_t i = 0; i < num_ops; i++)
        last = end[i] > last ? end[i] : last;
    int32_t *at_time = NULL; /* where the transfers of each time go */
    int32_t *by_time = NULL;
    ps_status status = ps_alloc_zeroed(last + 2, sizeof *at_time, (void **)&at_time);
    if (status != PS_OK)
        goto done;
    memset(first, 0, ((size_t)s->p + 1) * sizeof *first);
    for (int32_t rank = 0; rank < s->p; rank++)
        for (int64_t i = s->offsets[rank]; i < s->offsets[rank + 1]; i++) {
            if (!leaves(s, index, rank, s->ops[i]))
                continue;
            at_time[end[i] + 1]++;
            first[ps_schedule_rank(s, output_position(s, index, s->ops[i])) + 1]++;
        }
    for (int64_t time = 0; time <= last; time++)
        at_time[time + 1] += at_time[time];
    for (int32_t rank = 0; rank < s->p; rank++)
        first[rank + 1] += first[rank];
    status = ps_alloc(first[s->p], sizeof *by_time, (void **)&by_time);
    if (status != PS_OK)
        goto done;
    for (int32_t rank = 0; rank < s->p; rank++)
        for (int64_t i = s->offsets[rank]; i < s->offsets[rank + 1]; i++)
            if (leaves(s, index, rank, s->ops[i]))
                by_time[at_time[end[i]]++] = (int32_t)i;
    for (int64_t i = 0; i < first[s->p]; i++) {
        int64_t consumer = output_position(s, index, s->ops[by_time[i]]);
        received[first[ps_schedule_rank(s, consumer)]++] = by_time[i];
    }
    for (int32_t rank = s->p; rank > 0; rank--) /* each start has moved to its end */
        first[rank] = first[rank - 1];
    first[0] = 0;
done:
    free(at_time);
    free(by_time);
    return status;
}

typedef struct writer {
    const ps_schedule *schedule;
    const ps_index *index;
    const int64_t *end;
    const int32_t *next; /* the next receive of the rank */
    const int32_t *last; /* one past its last */
    ps_op *out;
} writer;

static int comes_before(const writer *self, int64_t a, int64_t b)
{
    return self->end[a] != self->end[b] ? self->end[a] < self->end[b] : a < b;
}

/* Write the receives up to the transfer with this source, itself too or not. */
static void write_receives(writer *self, int64_t source, int inclusive)
{
    const ps_schedule *s = self->schedule;
    while (self->next < self->last &&
           (comes_before(self, *self->next, source) || (inclusive && *self->next == source))) {
        ps_op consumer = s->ops[output_position(s, self->index, s->ops[*self->next])];
        int32_t kind = ps_recv_kind(ps_kind_lane(consumer.kind));
        *self->out++ = (ps_op){consumer.stage, consumer.microbatch, (int16_t)kind, 0};
        self->next++;
    }
}

static void write_rank(writer *self, int32_t rank)
{
    const ps_schedule *s = self->schedule;
    int64_t i = s->offsets[rank];
    while (i < s->offsets[rank + 1]) {
        int64_t past = i + 1 + s->ops[i].fuse; /* a pair is one */
        for (int64_t k = i; k < past; k++) {
            int64_t source = needed(s, self->index, rank, s->ops[k]);
            if (source >= 0)
                write_receives(self, source, 1);
        }
        for (int64_t k = i; k < past; k++)
            *self->out++ = s->ops[k];
        for (; i < past; i++) {
            ps_op op = s->ops[i];
            if (!leaves(s, self->index, rank, op))
                continue;
            write_receives(self, i, 0);
            int32_t kind = ps_send_kind(ps_kind_lane(op.kind));
            *self->out++ = (ps_op){op.stage, op.microbatch, (int16_t)kind, 0};
        }
    }
}

ps_status ps_lower_fill(const ps_schedule *schedule, const ps_index *index,
                        const int64_t *offsets, ps_op *ops)
{
    static const int32_t weight[PS_NUM_COMPUTE_KINDS] = {
        [PS_F] = 1, [PS_B] = 2, [PS_I] = 1, [PS_W] = 1};
    int64_t *end = NULL;
    int64_t *first = NULL;
    int32_t *received = NULL;
    int64_t num_ops = schedule->offsets[schedule->p];
    ps_status status = ps_alloc(num_ops, sizeof *end, (void **)&end);
    if (status != PS_OK)
        goto done;
    status = ps_lower_ends(schedule, index, weight, end);
    if (status != PS_OK)
        goto done;
    status = ps_alloc((int64_t)schedule->p + 1, sizeof *first, (void **)&first);
    if (status != PS_OK)
        goto done;
    status = ps_alloc(num_ops, sizeof *received, (void **)&received);
    if (status != PS_OK)
        goto done;
    status = order_receives(schedule, index, end, first, received);
    if (status != PS_OK)
        goto done;
    for (int32_t rank = 0; rank < schedule->p; rank++) {
        writer self = {
            schedule,           index, end, received + first[rank], received + first[rank + 1],
            ops + offsets[rank]};
        write_rank(&self, rank);
    }
done:
    free(end);
    free(first);
    free(received);
    return status;
}
