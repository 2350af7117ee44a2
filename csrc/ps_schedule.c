#include "ps_schedule.h"

#include <stdlib.h>
#include <string.h>

int32_t ps_schedule_rank(const ps_schedule *self, int64_t position)
{
    int32_t low = 0;
    int32_t high = self->p; /* the rank is in [low, high) */
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (self->offsets[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void ps_fault_clear(ps_fault *self)
{
    const ps_op nothing = {-1, -1, -1, 0};
    self->rank = self->other_rank = -1;
    self->position = self->other_position = -1;
    self->op = self->other = nothing;
}

void ps_fault_set_op(ps_fault *self, const ps_schedule *schedule, int64_t position)
{
    self->rank = ps_schedule_rank(schedule, position);
    self->position = position - schedule->offsets[self->rank];
    self->op = schedule->ops[position];
}

void ps_fault_set_other(ps_fault *self, const ps_schedule *schedule, int64_t position)
{
    self->other_rank = ps_schedule_rank(schedule, position);
    self->other_position = position - schedule->offsets[self->other_rank];
    self->other = schedule->ops[position];
}

ps_status ps_schedule_scan(const ps_schedule *self, uint32_t *kinds, ps_fault *fault)
{
    uint32_t seen = 0;
    for (int32_t rank = 0; rank < self->p; rank++) {
        int64_t end = self->offsets[rank + 1];
        int32_t open = 0; /* the op before opened a pair */
        for (int64_t i = self->offsets[rank]; i < end; i++) {
            ps_op op = self->ops[i];
            if (!ps_op_in_range(self, op)) {
                ps_fault_clear(fault);
                ps_fault_set_op(fault, self, i);
                return PS_ERR_OP_RANGE;
            }
            if (op.fuse && (open || i + 1 == end)) {
                ps_fault_clear(fault);
                ps_fault_set_op(fault, self, i);
                return PS_ERR_OP_PAIR;
            }
            open = op.fuse;
            seen |= 1u << op.kind;
        }
    }
    *kinds = seen;
    return PS_OK;
}

/* Mixes an op's name into the high bits (splitmix64's finisher). */
static uint64_t op_hash(ps_op op)
{
    uint64_t x = ((uint64_t)(uint32_t)op.stage << 32 | (uint32_t)op.microbatch) * 16 +
                 (uint64_t)ps_kind_lane(op.kind);
    /* I and B share a lane but are two ops: both hash alike, comparison tells. */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

ps_status ps_schedule_unique(const ps_schedule *self, ps_fault *fault)
{
    int64_t n = self->offsets[self->p];
    int64_t capacity = 16;
    while (capacity / 2 < n) {
        if (capacity > INT64_MAX / 4)
            return PS_ERR_OVERFLOW;
        capacity *= 2;
    }
    int64_t *table; /* position + 1, 0: free */
    ps_status status = ps_alloc_zeroed(capacity, sizeof *table, (void **)&table);
    if (status != PS_OK)
        return status;
    uint64_t mask = (uint64_t)capacity - 1;
    for (int64_t i = 0; i < n; i++) {
        ps_op op = self->ops[i];
        if (op.kind >= PS_UNSHARD)
            continue;
        uint64_t at = op_hash(op) & mask;
        for (; table[at] != 0; at = (at + 1) & mask) {
            ps_op other = self->ops[table[at] - 1];
            if (other.kind == op.kind && other.stage == op.stage &&
                other.microbatch == op.microbatch) {
                ps_fault_clear(fault);
                ps_fault_set_op(fault, self, i);
                ps_fault_set_other(fault, self, table[at] - 1);
                status = PS_ERR_OP_REPEATED;
                goto done;
            }
        }
        table[at] = i + 1;
    }
done:
    free(table);
    return status;
}

/* The first cell without a forward, where there are more cells than ops: one of
 * the first ops + 1 cells must be it, so nothing larger is allocated. */
static ps_status find_missing_forward(const ps_schedule *self, int64_t cells, ps_fault *fault)
{
    int64_t n = self->offsets[self->p];
    int64_t looked_at = n < cells ? n + 1 : cells;
    uint8_t *seen;
    ps_status status = ps_alloc_zeroed(looked_at, 1, (void **)&seen);
    if (status != PS_OK)
        return status;
    for (int64_t i = 0; i < n; i++) {
        int64_t cell = ps_op_cell(self, self->ops[i]);
        if (self->ops[i].kind == PS_F && cell < looked_at)
            seen[cell] = 1;
    }
    int64_t cell = 0;
    while (cell < looked_at && seen[cell])
        cell++;
    free(seen);
    if (cell == looked_at)
        return PS_OK;
    ps_fault_clear(fault);
    fault->op = (ps_op){(int32_t)(cell / self->num_microbatches),
                        (int32_t)(cell % self->num_microbatches), PS_F, 0};
    return PS_ERR_OP_MISSING;
}

ps_status ps_place_init_cells(ps_place *self, const ps_schedule *schedule)
{
    int64_t cells = (int64_t)schedule->num_stages * schedule->num_microbatches;
    ps_status status = ps_alloc(cells, sizeof *self->cell_rank, (void **)&self->cell_rank);
    if (status != PS_OK)
        return status;
    memset(self->cell_rank, 0xff, (size_t)cells * sizeof *self->cell_rank);
    for (int32_t rank = 0; rank < schedule->p; rank++)
        for (int64_t i = schedule->offsets[rank]; i < schedule->offsets[rank + 1]; i++)
            if (schedule->ops[i].kind == PS_F)
                self->cell_rank[ps_op_cell(schedule, schedule->ops[i])] = rank;
    return PS_OK;
}

void ps_place_free(ps_place *self)
{
    free(self->stage_rank);
    free(self->cell_rank);
    *self = (ps_place){NULL, NULL};
}

ps_status ps_place_init(ps_place *self, const ps_schedule *schedule)
{
    *self = (ps_place){NULL, NULL};
    ps_status status =
        ps_alloc(schedule->num_stages, sizeof *self->stage_rank, (void **)&self->stage_rank);
    if (status != PS_OK)
        return status;
    memset(self->stage_rank, 0xff, (size_t)schedule->num_stages * sizeof *self->stage_rank);
    int several = 0;
    for (int32_t rank = 0; rank < schedule->p; rank++)
        for (int64_t i = schedule->offsets[rank]; i < schedule->offsets[rank + 1]; i++) {
            if (schedule->ops[i].kind != PS_F)
                continue;
            int32_t *at = &self->stage_rank[schedule->ops[i].stage];
            if (*at == rank)
                continue;
            several |= *at != -1;
            *at = *at == -1 ? rank : -2;
        }
    return several ? ps_place_init_cells(self, schedule) : PS_OK;
}

/* Put every op where its name says. */
static ps_status fill_positions(ps_index *self, const ps_schedule *schedule, ps_fault *fault)
{
    int64_t n = schedule->offsets[schedule->p];
    int64_t forwards = 0;
    for (int64_t i = 0; i < n; i++) {
        ps_op op = schedule->ops[i];
        if (op.kind >= PS_UNSHARD)
            continue;
        int64_t slot = ps_kind_lane(op.kind) * self->cells + ps_op_cell(schedule, op);
        if (self->position[slot] >= 0) {
            /* Twice the same op, or B beside I; a repeated op is the plainer fault. */
            ps_status status = ps_schedule_unique(schedule, fault);
            if (status != PS_OK)
                return status;
            ps_fault_clear(fault);
            ps_fault_set_op(fault, schedule, i);
            ps_fault_set_other(fault, schedule, self->position[slot]);
            return PS_ERR_OP_SPLIT;
        }
        self->position[slot] = (int32_t)i;
        forwards += op.kind == PS_F;
    }
    return forwards == self->cells ? PS_OK : find_missing_forward(schedule, self->cells, fault);
}

ps_status ps_index_init(ps_index *self, const ps_schedule *schedule, ps_fault *fault)
{
    *self = (ps_index){0, 0, 0, NULL, {NULL, NULL}};
    int64_t n = schedule->offsets[schedule->p];
    if (n > INT32_MAX)
        return PS_ERR_OVERFLOW;
    ps_status status = ps_schedule_scan(schedule, &self->kinds, fault);
    if (status != PS_OK)
        return status;
    status = ps_mul(schedule->num_stages, schedule->num_microbatches, &self->cells);
    if (status != PS_OK)
        return status;
    /* A complete schedule has a forward for every cell, so that cells <= ops: no
     * table is larger than the ops themselves, whatever numbers a file holds. */
    if (self->cells > n) {
        status = ps_schedule_unique(schedule, fault);
        return status != PS_OK ? status : find_missing_forward(schedule, self->cells, fault);
    }
    self->lanes = ps_kinds_have_comms(self->kinds) ? PS_NUM_LANES
                  : (self->kinds >> PS_W & 1) != 0 ? PS_LANE_W + 1
                                                   : PS_LANE_B + 1;
    int64_t slots = self->lanes * self->cells;
    status = ps_alloc(slots, sizeof *self->position, (void **)&self->position);
    if (status != PS_OK)
        goto done;
    memset(self->position, 0xff, (size_t)slots * sizeof *self->position);
    status = fill_positions(self, schedule, fault);
    if (status != PS_OK)
        goto done;
    status = ps_place_init(&self->place, schedule);
done:
    if (status != PS_OK)
        ps_index_free(self);
    return status;
}

void ps_index_free(ps_index *self)
{
    free(self->position);
    ps_place_free(&self->place);
    *self = (ps_index){0, 0, 0, NULL, {NULL, NULL}};
}
