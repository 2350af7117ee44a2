/* See ps_simulate.h. How it is done:
 *
 * What an op hands to another rank (or another stage of its own) is one cell, by
 * lane, stage and micro-batch. A cell says when its content arrives at the op
 * that uses it, or that nobody has made it yet, or which rank waits for it. The
 * dependency rule lets at most one op use a result, so a cell has room for the
 * one rank that can be waiting. Which row of cells an op uses and which it makes
 * depends on its kind and stage only: the rule is asked once for each of those,
 * and the answers stand beside the costs, so that the loop over ops hardly
 * branches.
 */
#include "ps_simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Kinds that use or make cells: compute, sends and receives. */
enum { CELL_KINDS = PS_RECV_B + 1 };

/* 0: not made. -1 - rank: not made, and that rank waits. Else 1 + the bits of the
 * arrival time; times are not negative, so that these are positive. */
typedef int64_t cell_t;

static inline cell_t cell_made(double time)
{
    int64_t bits;
    memcpy(&bits, &time, sizeof bits);
    return bits + 1;
}

static inline double cell_time(cell_t made)
{
    int64_t bits = made - 1;
    double time;
    memcpy(&time, &bits, sizeof time);
    return time;
}

/* All that an op needs of its stage and kind, together. */
typedef struct op_line {
    double time;
    double bytes;  /* taken; below 0: given back */
    double hop;    /* transfer time of the result, on free links */
    int64_t uses;  /* first cell of a row */
    int64_t makes; /* first cell of a row */
} op_line;

/* A rank under way. */
typedef struct rank_state {
    int64_t next; /* op */
    double clock;
    double busy;
    double first; /* start of the first compute op; -1: none yet */
    double last;  /* end of the last compute op */
    double bytes;
    double most_bytes;
    int64_t chunks; /* activations held */
    int64_t most_chunks;
} rank_state;

/* The way from one rank to another, where transfers queue. */
typedef struct serial_link {
    int64_t key;  /* from * p + to; -1: an empty place of the table */
    double free;  /* when the last transfer is over */
    int64_t head; /* the op whose transfer began the unbroken row of transfers */
} serial_link;

struct ps_simulator {
    ps_schedule schedule;
    int has_comms;
    int forward_only;
    ps_place place;
    int64_t *held_offset; /* p + 1, into held_stage: the stages of each rank */
    int32_t *held_stage;
    int64_t num_cells;
    int cells_used; /* a run has written to them */
    cell_t *cells;
    op_line *lines; /* CELL_KINDS a stage */
    rank_state *ranks;
    int32_t *ready; /* ranks that can go on: a ring of p */
    int32_t ready_from;
    int32_t ready_count;
    int64_t num_links; /* size of the table: a power of two; 0: not made yet */
    serial_link *links;
};

/* What a run holds constant, for the loops. */
typedef struct run_context {
    ps_simulator *sim;
    const ps_costs *costs;
    double *end;     /* NULL: not wanted */
    int64_t *source; /* by cell, the op that fixed its arrival; NULL: not wanted */
} run_context;

/* ---- rows of cells --------------------------------------------------------- */

/* Row 0 is made from the beginning: "needs nothing". Then a row a stage of results
 * of F, then a row a stage of results of B or I. Nobody uses the first stage's
 * backward result, so that its row also takes what goes nowhere. */
static int64_t result_row(const ps_schedule *schedule, int32_t lane, int64_t stage)
{
    int64_t row = lane == PS_LANE_F ? 1 + stage : 1 + schedule->num_stages + stage;
    return row * schedule->num_microbatches;
}

/* Fill in what each kind of op uses and makes at a stage. A send makes its op's result
 * in the op's place; a receive uses nothing: it is posted, and the op that needs what
 * it brings is what waits, as in torch's runtime. */
static void set_rows(ps_simulator *sim, int32_t stage)
{
    const ps_schedule *schedule = &sim->schedule;
    op_line *lines = &sim->lines[(int64_t)stage * CELL_KINDS];
    for (int kind = 0; kind < CELL_KINDS; kind++)
        lines[kind] = (op_line){.makes = result_row(schedule, PS_LANE_B, 0)};
    static const int16_t kinds[] = {PS_F, PS_B, PS_I};
    for (int i = 0; i < 3; i++) {
        ps_op op = {stage, 0, kinds[i], 0};
        int32_t lane = ps_kind_lane(op.kind);
        int64_t input = ps_input_cell(schedule, op, ps_op_cell(schedule, op));
        if (input >= 0)
            lines[op.kind].uses =
                result_row(schedule, lane, input / schedule->num_microbatches);
        lines[op.kind].makes = lines[ps_send_kind(lane)].makes =
            result_row(schedule, lane, stage);
    }
}

static inline const op_line *line_of(const ps_simulator *sim, ps_op op)
{
    return &sim->lines[(int64_t)op.stage * CELL_KINDS + op.kind];
}

/* The stage whose op uses what this lane makes at a stage; -1: none. */
static int32_t user_stage(const ps_schedule *schedule, int32_t lane, int32_t stage)
{
    ps_op op = {stage, 0, lane == PS_LANE_F ? PS_F : PS_B, 0};
    int64_t cell = ps_output_cell(schedule, op, ps_op_cell(schedule, op));
    return cell < 0 ? -1 : (int32_t)(cell / schedule->num_microbatches);
}

/* The cost of that way. */
static double transfer_time(const ps_simulator *sim, const ps_costs *costs, int32_t lane,
                            int32_t stage)
{
    return lane == PS_LANE_F ? costs->transfers[stage]
                             : costs->transfers[sim->schedule.num_stages + stage - 1];
}

/* ---- serial links ---------------------------------------------------------- */

static uint64_t link_hash(int64_t key)
{
    uint64_t x = (uint64_t)key * 0x9e3779b97f4a7c15u;
    return x ^ (x >> 32);
}

/* Where the key is, or the empty place for it. The table is never full. */
static serial_link *link_find(serial_link *links, int64_t num_links, int64_t key)
{
    uint64_t mask = (uint64_t)num_links - 1;
    uint64_t at = link_hash(key) & mask;
    while (links[at].key != key && links[at].key != -1)
        at = (at + 1) & mask;
    return &links[at];
}

static ps_status link_table(int64_t size, serial_link **out)
{
    ps_status status = ps_alloc(size, sizeof **out, (void **)out);
    if (status != PS_OK)
        return status;
    for (int64_t i = 0; i < size; i++)
        (*out)[i] = (serial_link){-1, 0.0, -1};
    return PS_OK;
}

/* Add the way from one rank to another, and double the table when half full. */
static ps_status link_add(ps_simulator *sim, int64_t *count, int64_t key)
{
    serial_link *link = link_find(sim->links, sim->num_links, key);
    if (link->key == key)
        return PS_OK;
    link->key = key;
    if (++*count <= sim->num_links / 2)
        return PS_OK;
    serial_link *larger;
    int64_t size = 2 * sim->num_links;
    ps_status status = link_table(size, &larger);
    if (status != PS_OK)
        return status;
    for (int64_t i = 0; i < sim->num_links; i++)
        if (sim->links[i].key != -1)
            link_find(larger, size, sim->links[i].key)->key = sim->links[i].key;
    free(sim->links);
    sim->links = larger;
    sim->num_links = size;
    return PS_OK;
}

/* Make every link that this schedule can use, both ways; once. */
static ps_status make_links(ps_simulator *sim)
{
    if (sim->num_links > 0)
        return PS_OK;
    const ps_schedule *schedule = &sim->schedule;
    int64_t p = schedule->p;
    int64_t m = schedule->num_microbatches;
    int64_t count = 0;
    ps_status status = link_table(64, &sim->links);
    if (status != PS_OK)
        return status;
    sim->num_links = 64;
    for (int32_t stage = 0; stage + 1 < schedule->num_stages; stage++) {
        int one_each =
            sim->place.stage_rank[stage] >= 0 && sim->place.stage_rank[stage + 1] >= 0;
        for (int64_t j = 0; j < (one_each ? 1 : m); j++) {
            int64_t cell = stage * m + j;
            int64_t a = ps_place_rank(&sim->place, stage, cell);
            int64_t b = ps_place_rank(&sim->place, stage + 1, cell + m);
            if (a < 0 || b < 0 || a == b)
                continue;
            status = link_add(sim, &count, a * p + b);
            if (status == PS_OK)
                status = link_add(sim, &count, b * p + a);
            if (status != PS_OK) {
                free(sim->links);
                sim->links = NULL;
                sim->num_links = 0;
                return status;
            }
        }
    }
    return PS_OK;
}

/* The rank that uses what a lane makes of an op; this rank itself: nobody else does. */
static int32_t user_rank(const ps_simulator *sim, int32_t lane, ps_op op, int32_t rank)
{
    int32_t user = user_stage(&sim->schedule, lane, op.stage);
    if (user < 0)
        return rank;
    int64_t cell = (int64_t)user * sim->schedule.num_microbatches + op.microbatch;
    return ps_place_rank(&sim->place, user, cell);
}

/* When what a lane made at (stage, microbatch) on this rank at a time arrives where
 * it is used. *source: the op that fixed that; op_index is the maker. */
static double arrival(const run_context *run, int32_t lane, ps_op op, int32_t rank, double now,
                      int64_t op_index, int64_t *source)
{
    const ps_simulator *sim = run->sim;
    *source = op_index;
    int32_t to = user_rank(sim, lane, op, rank);
    if (to == rank)
        return now;
    double hop = transfer_time(sim, run->costs, lane, op.stage);
    if (run->costs->scale != NULL)
        hop *= run->costs->scale[op.microbatch];
    if (!run->costs->serial)
        return now + hop;
    int64_t key = (int64_t)rank * sim->schedule.p + to;
    serial_link *link = link_find(sim->links, sim->num_links, key);
    if (link->key != key) /* only where a backward is not on its forward's rank */
        return now + hop;
    if (now >= link->free) {
        link->head = op_index;
        link->free = now;
    }
    *source = link->head;
    link->free += hop;
    return link->free;
}

/* ---- making and freeing ---------------------------------------------------- */

/* Find the stages of each rank, where each stage is on one rank. */
static ps_status find_held_simple(ps_simulator *sim)
{
    const ps_schedule *schedule = &sim->schedule;
    const int32_t *home = sim->place.stage_rank;
    int64_t *offset = sim->held_offset;
    ps_status status =
        ps_alloc(schedule->num_stages, sizeof *sim->held_stage, (void **)&sim->held_stage);
    if (status != PS_OK)
        return status;
    memset(offset, 0, ((size_t)schedule->p + 1) * sizeof *offset);
    for (int32_t stage = 0; stage < schedule->num_stages; stage++)
        offset[home[stage] + 1]++;
    for (int32_t rank = 0; rank < schedule->p; rank++)
        offset[rank + 1] += offset[rank];
    for (int32_t stage = 0; stage < schedule->num_stages; stage++)
        sim->held_stage[offset[home[stage]]++] = stage;
    /* Each offset now stands at the end of its rank. */
    memmove(offset + 1, offset, (size_t)schedule->p * sizeof *offset);
    offset[0] = 0;
    return PS_OK;
}

/* The same from the ops, for stages on several ranks. */
static ps_status find_held(ps_simulator *sim)
{
    const ps_schedule *schedule = &sim->schedule;
    int32_t *seen; /* the rank at which a stage was seen last */
    ps_status status = ps_alloc(schedule->num_stages, sizeof *seen, (void **)&seen);
    if (status != PS_OK)
        return status;
    for (int fill = 0; fill < 2 && status == PS_OK; fill++) {
        int64_t count = 0;
        memset(seen, 0xff, (size_t)schedule->num_stages * sizeof *seen);
        for (int32_t rank = 0; rank < schedule->p; rank++) {
            sim->held_offset[rank] = count;
            for (int64_t i = schedule->offsets[rank]; i < schedule->offsets[rank + 1]; i++) {
                ps_op op = schedule->ops[i];
                if (op.kind != PS_F || seen[op.stage] == rank)
                    continue;
                seen[op.stage] = rank;
                if (fill)
                    sim->held_stage[count] = op.stage;
                count++;
            }
        }
        sim->held_offset[schedule->p] = count;
        if (!fill)
            status = ps_alloc(count, sizeof *sim->held_stage, (void **)&sim->held_stage);
    }
    free(seen);
    return status;
}

ps_status ps_simulator_new(const ps_schedule *schedule, ps_simulator **out)
{
    ps_simulator *sim;
    ps_fault fault;
    uint32_t kinds = 0;
    *out = NULL;
    ps_status status = ps_alloc_zeroed(1, sizeof *sim, (void **)&sim);
    if (status != PS_OK)
        return status;
    sim->schedule = *schedule;
    status = ps_schedule_scan(schedule, &kinds, &fault);
    if (status != PS_OK)
        goto done;
    sim->has_comms = (kinds >> PS_SEND_F & 0xf) != 0;
    sim->forward_only = (kinds & (1u << PS_B | 1u << PS_I)) == 0;
    status = ps_place_init(&sim->place, schedule);
    if (status != PS_OK)
        goto done;
    for (int32_t stage = 0; stage < schedule->num_stages; stage++)
        if (sim->place.stage_rank[stage] == -1) {
            status = PS_ERR_OP_MISSING;
            goto done;
        }
    int64_t rows = 1 + 2 * (int64_t)schedule->num_stages;
    status = ps_mul(rows, schedule->num_microbatches, &sim->num_cells);
    if (status == PS_OK)
        status = ps_alloc_zeroed(sim->num_cells, sizeof *sim->cells, (void **)&sim->cells);
    if (status == PS_OK)
        status = ps_alloc((int64_t)schedule->num_stages * CELL_KINDS, sizeof *sim->lines,
                          (void **)&sim->lines);
    if (status == PS_OK)
        status = ps_alloc(schedule->p, sizeof *sim->ranks, (void **)&sim->ranks);
    if (status == PS_OK)
        status = ps_alloc(schedule->p, sizeof *sim->ready, (void **)&sim->ready);
    if (status == PS_OK)
        status = ps_alloc((int64_t)schedule->p + 1, sizeof *sim->held_offset,
                          (void **)&sim->held_offset);
    if (status == PS_OK)
        status = sim->place.cell_rank == NULL ? find_held_simple(sim) : find_held(sim);
    if (status != PS_OK)
        goto done;
    for (int32_t stage = 0; stage < schedule->num_stages; stage++)
        set_rows(sim, stage);
done:
    if (status == PS_OK)
        *out = sim;
    else
        ps_simulator_free(sim);
    return status;
}

void ps_simulator_free(ps_simulator *sim)
{
    if (sim == NULL)
        return;
    ps_place_free(&sim->place);
    free(sim->held_offset);
    free(sim->held_stage);
    free(sim->cells);
    free(sim->lines);
    free(sim->ranks);
    free(sim->ready);
    free(sim->links);
    free(sim);
}

/* ---- one run --------------------------------------------------------------- */

/* Forget the run before; row 0 is made at time 0. */
static void clear_cells(ps_simulator *sim)
{
    if (sim->cells_used)
        memset(sim->cells, 0, (size_t)sim->num_cells * sizeof *sim->cells);
    sim->cells_used = 1;
    for (int64_t j = 0; j < sim->schedule.num_microbatches; j++)
        sim->cells[j] = cell_made(0.0);
    for (int64_t i = 0; i < sim->num_links; i++) {
        sim->links[i].free = 0.0;
        sim->links[i].head = -1;
    }
}

static int any_transfer(const ps_simulator *sim, const ps_costs *costs)
{
    for (int64_t s = 0; s + 1 < sim->schedule.num_stages; s++)
        if (costs->transfers[s] > 0.0 || costs->transfers[sim->schedule.num_stages + s] > 0.0)
            return 1;
    return 0;
}

/* Copy the costs beside the rows. */
static void set_lines(ps_simulator *sim, const ps_costs *costs)
{
    int64_t S = sim->schedule.num_stages;
    for (int32_t s = 0; s < S; s++) {
        op_line *lines = &sim->lines[(int64_t)s * CELL_KINDS];
        double whole = costs->memory[s];
        double kept = costs->memory[S + s];
        for (int kind = 0; kind < PS_NUM_COMPUTE_KINDS; kind++) {
            lines[kind].time = costs->times[kind * S + s];
            lines[kind].hop = 0.0;
        }
        lines[PS_F].bytes = whole;
        lines[PS_B].bytes = -whole;
        lines[PS_I].bytes = kept - whole;
        lines[PS_W].bytes = -kept;
        if (sim->has_comms || sim->place.cell_rank != NULL)
            continue; /* arrival() looks up each transfer */
        const int32_t *home = sim->place.stage_rank;
        if (s + 1 < S && home[s] != home[s + 1])
            lines[PS_F].hop = costs->transfers[s];
        if (s > 0 && home[s] != home[s - 1])
            lines[PS_B].hop = lines[PS_I].hop = costs->transfers[S + s - 1];
    }
}

static ps_status begin_run(ps_simulator *sim, const ps_costs *costs)
{
    ps_status status = costs->serial ? make_links(sim) : PS_OK;
    if (status == PS_OK) {
        clear_cells(sim);
        set_lines(sim, costs);
    }
    return status;
}

static inline void make_ready(ps_simulator *sim, int32_t rank)
{
    int32_t at = sim->ready_from + sim->ready_count++ - sim->schedule.p;
    sim->ready[at < 0 ? at + sim->schedule.p : at] = rank;
}

static inline void put_cell(ps_simulator *sim, int64_t index, double time)
{
    cell_t before = sim->cells[index];
    sim->cells[index] = cell_made(time);
    if (before < 0)
        make_ready(sim, (int32_t)(-1 - before));
}

/* Does this op pass something on? With sends in the schedule an op keeps to its rank. */
static int is_maker(const ps_simulator *sim, int32_t lane, ps_op op, int32_t rank)
{
    if (op.kind == PS_F || ps_kind_is_backward(op.kind))
        return !sim->has_comms || user_rank(sim, lane, op, rank) == rank;
    return op.kind == PS_SEND_F || op.kind == PS_SEND_B;
}

/* Hand on what an op made, where its hop alone does not say when it arrives. */
static void hand_on(const run_context *run, ps_op op, int32_t rank, double now,
                    int64_t op_index)
{
    ps_simulator *sim = run->sim;
    int32_t lane = op.kind == PS_F || op.kind == PS_SEND_F ? PS_LANE_F : PS_LANE_B;
    if (!is_maker(sim, lane, op, rank))
        return;
    int64_t index = line_of(sim, op)->makes + op.microbatch;
    int64_t source;
    double time = arrival(run, lane, op, rank, now, op_index, &source);
    if (run->source != NULL)
        run->source[index] = source;
    put_cell(sim, index, time);
}

static inline void hold(rank_state *me, const ps_simulator *sim, int32_t kind, double bytes)
{
    static const int8_t chunks[PS_NUM_COMPUTE_KINDS] = {1, -1, 0, -1};
    me->bytes += bytes;
    me->chunks += chunks[kind];
    if (me->bytes > me->most_bytes)
        me->most_bytes = me->bytes;
    if (me->chunks > me->most_chunks)
        me->most_chunks = me->chunks;
    if (sim->forward_only) { /* nobody will ask for it again */
        me->bytes -= bytes;
        me->chunks -= chunks[kind];
    }
}

/* Two ops as one: they start when both can and end together. 1, or 0: must wait. */
static int run_pair(const run_context *run, int32_t rank, rank_state *me)
{
    ps_simulator *sim = run->sim;
    const double *scale = run->costs->scale;
    ps_op op[2] = {sim->schedule.ops[me->next], sim->schedule.ops[me->next + 1]};
    double bytes[2], factor[2], time = 0.0, begin = me->clock;
    for (int i = 0; i < 2; i++) {
        if (op[i].kind >= PS_NUM_COMPUTE_KINDS)
            return 0; /* ps_check refuses it; here the rank stays where it is */
        const op_line *line = line_of(sim, op[i]);
        cell_t *input = &sim->cells[line->uses + op[i].microbatch];
        if (*input <= 0) {
            *input = -1 - (cell_t)rank;
            return 0;
        }
        begin = fmax(begin, cell_time(*input));
        factor[i] = scale == NULL ? 1.0 : scale[op[i].microbatch];
        time += line->time * factor[i];
        bytes[i] = line->bytes * factor[i];
    }
    int forward = op[0].kind == PS_F ? 0 : 1;
    if (run->costs->overlap != NULL)
        time = run->costs->overlap[op[forward].stage] * fmax(factor[0], factor[1]);
    /* What the forward takes is taken before the backward gives anything back. */
    hold(me, sim, op[forward].kind, bytes[forward]);
    hold(me, sim, op[1 - forward].kind, bytes[1 - forward]);
    double end = begin + time;
    for (int i = 0; i < 2; i++) {
        if (run->end != NULL)
            run->end[me->next + i] = end;
        hand_on(run, op[i], rank, end, me->next + i);
    }
    if (me->first < 0.0)
        me->first = begin;
    me->clock = me->last = end;
    me->busy += time;
    me->next += 2;
    return 1;
}

/* A send, a receive, or a kind that only marks a moment: none of them waits. */
static void run_mark(const run_context *run, int32_t rank, rank_state *me)
{
    hand_on(run, run->sim->schedule.ops[me->next], rank, me->clock, me->next);
    if (run->end != NULL)
        run->end[me->next] = me->clock;
    me->next++;
}

/* Let a rank run until it must wait or is done. plain: hop says all about the
 * transfers and there is no scale; a constant, so that two loops are made. */
static inline void run_rank(const run_context *run, int32_t rank, const int plain)
{
    ps_simulator *sim = run->sim;
    const ps_op *ops = sim->schedule.ops;
    int64_t stop = sim->schedule.offsets[rank + 1];
    rank_state me = sim->ranks[rank];
    while (me.next < stop) {
        ps_op op = ops[me.next];
        if (op.kind >= PS_NUM_COMPUTE_KINDS || op.fuse) {
            rank_state other = me; /* so that me itself can stay in registers */
            int went = 1;
            if (op.fuse)
                went = run_pair(run, rank, &other);
            else
                run_mark(run, rank, &other);
            me = other;
            if (!went)
                break;
            continue;
        }
        const op_line *line = line_of(sim, op);
        cell_t *input = &sim->cells[line->uses + op.microbatch];
        if (*input <= 0) {
            *input = -1 - (cell_t)rank;
            break;
        }
        double arrived = cell_time(*input);
        double begin = arrived > me.clock ? arrived : me.clock;
        double time = line->time;
        double bytes = line->bytes;
        if (!plain && run->costs->scale != NULL) {
            time *= run->costs->scale[op.microbatch];
            bytes *= run->costs->scale[op.microbatch];
        }
        double end = begin + time;
        if (run->end != NULL)
            run->end[me.next] = end;
        if (plain)
            put_cell(sim, line->makes + op.microbatch, end + line->hop);
        else
            hand_on(run, op, rank, end, me.next);
        hold(&me, sim, op.kind, bytes);
        if (me.first < 0.0)
            me.first = begin;
        me.clock = me.last = end;
        me.busy += time;
        me.next++;
    }
    sim->ranks[rank] = me;
}

static void run_plain(const run_context *run, int32_t rank)
{
    run_rank(run, rank, 1);
}

static void run_general(const run_context *run, int32_t rank)
{
    run_rank(run, rank, 0);
}

ps_status ps_simulator_run(ps_simulator *sim, const ps_costs *costs, const ps_times *times)
{
    const ps_schedule *schedule = &sim->schedule;
    int64_t S = schedule->num_stages;
    int transfers = any_transfer(sim, costs);
    run_context run = {sim, costs, times->end, NULL};
    int plain = costs->scale == NULL && !sim->has_comms &&
                (!transfers || (!costs->serial && sim->place.cell_rank == NULL));
    ps_status status = begin_run(sim, costs);
    if (status != PS_OK)
        return status;

    sim->ready_from = sim->ready_count = 0;
    for (int32_t rank = 0; rank < schedule->p; rank++) {
        double fixed = 0.0;
        for (int64_t i = sim->held_offset[rank]; i < sim->held_offset[rank + 1]; i++)
            fixed += costs->memory[2 * S + sim->held_stage[i]];
        times->fixed[rank] = fixed;
        sim->ranks[rank] =
            (rank_state){schedule->offsets[rank], 0.0, 0.0, -1.0, 0.0, fixed, fixed, 0, 0};
        make_ready(sim, rank);
    }
    while (sim->ready_count > 0) {
        int32_t rank = sim->ready[sim->ready_from++];
        sim->ready_count--;
        if (sim->ready_from == schedule->p)
            sim->ready_from = 0;
        if (plain)
            run_plain(&run, rank);
        else
            run_general(&run, rank);
    }

    double to = 0.0, work = 0.0, most = 0.0;
    for (int32_t rank = 0; rank < schedule->p; rank++) {
        const rank_state *me = &sim->ranks[rank];
        if (me->next < schedule->offsets[rank + 1])
            return PS_ERR_DEADLOCK;
        times->busy[rank] = me->busy;
        times->first[rank] = me->first < 0.0 ? 0.0 : me->first;
        times->last[rank] = me->last;
        times->peak_memory[rank] = me->most_bytes;
        times->peak_activations[rank] = me->most_chunks;
        work += me->busy;
        most = fmax(most, me->most_bytes);
        to = fmax(to, me->last);
    }
    /* Everything that is computed from these stays finite too. */
    if (!isfinite(to) || !isfinite(most) || !isfinite(work) ||
        !isfinite(to * (double)schedule->p))
        return PS_ERR_OVERFLOW;
    return PS_OK;
}

/* ---- looking back ------------------------------------------------------------ */

/* When what op i uses arrived, and the op that fixed that (where sources are kept). */
static double input_arrival(const run_context *run, int64_t i, int64_t *source)
{
    const ps_simulator *sim = run->sim;
    ps_op op = sim->schedule.ops[i];
    *source = -1;
    if (op.kind >= CELL_KINDS)
        return 0.0;
    int64_t index = line_of(sim, op)->uses + op.microbatch;
    if (sim->cells[index] <= 0)
        return 0.0;
    if (run->source != NULL)
        *source = run->source[index];
    return cell_time(sim->cells[index]);
}

/* Start and cause of every op of a rank; all cells are made. */
static void look_back(const run_context *run, int32_t rank, const double *end, double *start,
                      int64_t *cause)
{
    const ps_schedule *schedule = &run->sim->schedule;
    int64_t from = schedule->offsets[rank];
    int64_t stop = schedule->offsets[rank + 1];
    for (int64_t i = from; i < stop; i++) {
        int64_t last = i + schedule->ops[i].fuse; /* of the pair */
        int64_t fixed_by = i > from ? i - 1 : -1;
        double begin = i > from ? end[i - 1] : 0.0;
        for (int64_t k = i; k <= last; k++) {
            int64_t source;
            double arrived = input_arrival(run, k, &source);
            if (arrived > begin) {
                begin = arrived;
                fixed_by = source;
            }
        }
        for (int64_t k = i; k <= last; k++) {
            if (start != NULL)
                start[k] = begin;
            if (cause != NULL)
                cause[k] = fixed_by;
        }
        i = last;
    }
}

ps_status ps_simulator_look_back(ps_simulator *sim, const ps_costs *costs, const double *end,
                                 double *start, int64_t *cause)
{
    const ps_schedule *schedule = &sim->schedule;
    run_context run = {sim, costs, NULL, NULL};
    ps_status status = begin_run(sim, costs);
    if (status == PS_OK && cause != NULL)
        status = ps_alloc(sim->num_cells, sizeof *run.source, (void **)&run.source);
    if (status != PS_OK)
        return status;
    if (cause != NULL)
        memset(run.source, 0xff, (size_t)sim->num_cells * sizeof *run.source);
    /* Nobody waits here: all ends are known, and links queue in their sender's order. */
    for (int32_t rank = 0; rank < schedule->p; rank++)
        for (int64_t i = schedule->offsets[rank]; i < schedule->offsets[rank + 1]; i++)
            hand_on(&run, schedule->ops[i], rank, end[i], i);
    for (int32_t rank = 0; rank < schedule->p; rank++)
        look_back(&run, rank, end, start, cause);
    free(run.source);
    return PS_OK;
}
