/* PipeDream's published optimizer restated: its objective, with its faults. */
#include "states.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pairs of states that are looked at between two questions to the caller. */
enum { PAIRS_PER_POLL = 1 << 20 };

/* The most doubles kept so as not to compute a level's last stages for each row. */
enum { MAX_TABLE = 1 << 24 };

/* A source of a range is the start (-1) or a state: its row is source + 1. */
typedef struct level {
    int32_t machines;
    double bandwidth;
    double inner;       /* machines of the level below, which share a reduction */
    const double *of;   /* rows * states: cost of a range; NULL: the sums of the states */
    double share;       /* of a range's compute that its cost is at least */
    const double *last; /* last_stages() of every state, or NULL */
} level;

/* The caller is asked once for so much work. */
typedef struct pacer {
    const ps_poll *poll;
    int64_t work;
} pacer;

typedef struct program {
    const ps_states *states;
    const ps_compat *options;
    const int64_t *first; /* count + 1: where a state's ancestors start in `ancestors` */
    const int32_t *ancestors;
    const uint8_t *before;        /* count * count: [j * count + k]: k is an ancestor of j */
    const int32_t *first_in_cell; /* last_cell + 2: see state_at() */
    double cells_per_second;
    int32_t last_cell;
    pacer *pace;
} program;

static ps_status go_on(pacer *pace, int64_t work)
{
    pace->work += work;
    if (pace->work <= PAIRS_PER_POLL)
        return PS_OK;
    pace->work = 0;
    int stop = pace->poll->ask != NULL && pace->poll->ask(pace->poll->context);
    return stop ? PS_ERR_INTERRUPTED : PS_OK;
}

static double sum_of(const double *sums, int32_t source, int32_t target)
{
    return sums[target] - (source < 0 ? 0.0 : sums[source]);
}

static double range_cost(const program *p, const level *l, int32_t source, int32_t target)
{
    if (l->of == NULL)
        return sum_of(p->states->compute, source, target);
    return l->of[(int64_t)(source + 1) * p->states->count + target];
}

/* The memory test, one version short: the replicas behind stash nothing at all
 * where the machines before them are none. */
static int too_big(const program *p, int32_t source, int32_t target, int32_t machines_left,
                   int32_t replicas)
{
    if (p->options->memory == INFINITY)
        return 0;
    int32_t versions = (machines_left + replicas - 1) / replicas;
    double bytes = sum_of(p->states->activation, source, target) +
                   sum_of(p->states->parameters, source, target);
    return versions * bytes > p->options->memory;
}

/* One stage over `source`..`target` on n machines, alone on the level. */
static double alone(const program *p, const level *l, int32_t source, int32_t target, int32_t n)
{
    if ((p->options->straight && n > 1) || too_big(p, source, target, l->machines - n, n))
        return INFINITY;
    double reduce = 4.0 * (n - 1) * sum_of(p->states->parameters, source, target) /
                    (l->bandwidth * n) / l->inner;
    return (range_cost(p, l, source, target) + reduce) / n;
}

/* The last stage, from k to j on r machines, with its transfers. */
static double last_stage(const program *p, const level *l, int32_t k, int32_t j, int32_t r)
{
    const ps_states *s = p->states;
    double part = 1.0 / r;
    double reduce = 4.0 * (r - 1) * part * part / l->bandwidth;
    double busy = range_cost(p, l, k, j) * part + sum_of(s->parameters, k, j) * reduce;
    if (p->options->compressed <= 0.0)
        return busy;
    double moved = s->crossing[k];
    if (j != s->count - 1)
        moved = fmax(moved, s->crossing[j]);
    return fmax(busy, moved * (2.0 * part / l->bandwidth / p->options->compressed));
}

/* last[(r - 1) * states + k] = last_stage() for all k before j; INFINITY where k is no
 * ancestor. Written for the compiler's vectors: this is half of the work. */
static void last_stages(const program *p, const level *l, int32_t j, double *last)
{
    const ps_states *s = p->states;
    const uint8_t *ancestor = p->before + (int64_t)j * s->count;
    double out = j != s->count - 1 ? s->crossing[j] : 0.0;
    double weights = s->parameters[j];
    double *cost = last; /* the first row is made last, in place */
    for (int32_t k = 0; k < j; k++)
        cost[k] = ancestor[k] ? range_cost(p, l, k, j) : INFINITY;
    for (int32_t r = p->options->straight ? 1 : l->machines - 1; r >= 1; r--) {
        double *to = last + (int64_t)(r - 1) * s->count;
        double part = 1.0 / r;
        double reduce = 4.0 * (r - 1) * part * part / l->bandwidth;
        double move = p->options->compressed > 0.0
                          ? 2.0 * part / l->bandwidth / p->options->compressed
                          : 0.0;
        for (int32_t k = 0; k < j; k++) {
            double busy = cost[k] * part + (weights - s->parameters[k]) * reduce;
            double moved = (s->crossing[k] > out ? s->crossing[k] : out) * move;
            to[k] = busy > moved ? busy : moved;
        }
    }
}

/* States are sorted by compute. The first of the states low .. high-1 that may have
 * at least so much, by a grid and not by a search, which would take most of the time:
 * not behind the true one, or with `more`, not before the first that has more. */
static int32_t state_at(const program *p, int32_t low, int32_t high, double compute, int more)
{
    double cell = compute * p->cells_per_second;
    /* Not above 0: an infinite time times a model without compute is not a number */
    int32_t at;
    if (!(cell > 0.0))
        at = p->first_in_cell[more];
    else if (cell >= p->last_cell)
        at = p->first_in_cell[p->last_cell + more];
    else
        at = p->first_in_cell[(int32_t)cell + more];
    return at < low ? low : at > high ? high : at;
}

static double smaller_later(double before, double own, double time)
{
    double later = before > own ? before : own;
    return later < time ? later : time;
}

/* The smallest max(before[k], own[k]) for k in low .. high-1, or `time`. Four
 * minima at once, as each would wait for the one before it. */
static double best_cut(const double *before, const double *own, int32_t low, int32_t high,
                       double time)
{
    double a = time, b = time, c = time, d = time;
    int32_t k = low;
    for (; k + 4 <= high; k += 4) {
        a = smaller_later(before[k], own[k], a);
        b = smaller_later(before[k + 1], own[k + 1], b);
        c = smaller_later(before[k + 2], own[k + 2], c);
        d = smaller_later(before[k + 3], own[k + 3], d);
    }
    for (; k < high; k++)
        a = smaller_later(before[k], own[k], a);
    a = b < a ? b : a;
    c = d < c ? d : c;
    return c < a ? c : a;
}

/* The same where the memory test must be passed, too. */
static double best_small_cut(const program *p, const double *before, const double *own,
                             int32_t low, int32_t high, double time, int32_t j,
                             int32_t machines_left, int32_t r)
{
    for (int32_t k = low; k < high; k++) {
        double later = before[k] > own[k] ? before[k] : own[k];
        if (later < time && !too_big(p, k, j, machines_left, r))
            time = later;
    }
    return time;
}

/* The best time up to j on n machines whose last stage has r, if it beats `time`.
 * A stage on r machines takes at least its compute over r, and so do the stages
 * before it on n - r: only cuts in a window can beat a time in hand, as states are
 * sorted by compute. The cuts in proportion come first and make the window small. */
static double extend(const program *p, const level *l, const double *best, const double *last,
                     int32_t source, int32_t j, int32_t n, int32_t r, double time)
{
    int32_t count = p->states->count;
    const double *compute = p->states->compute;
    const double *before = best + (int64_t)(n - r - 1) * count;
    const double *own = last + (int64_t)(r - 1) * count;
    double start = source < 0 ? 0.0 : compute[source];
    int32_t left = l->machines - n;
    for (int pass = 0; pass < 2; pass++) {
        int32_t low, high;
        if (pass == 0) {
            double part = (compute[j] - start) * (n - r) / n;
            int32_t k = state_at(p, source + 1, j, start + part, 0);
            low = k - 2 > source + 1 ? k - 2 : source + 1;
            high = k + 2 < j ? k + 2 : j;
        } else { /* rounding must not cut a cut off */
            double reach = time / l->share * (1.0 + 1e-9);
            if (compute[j] - start > reach * n)
                break;
            low = state_at(p, source + 1, j, compute[j] - reach * r, 0);
            high = state_at(p, low, j, start + reach * (n - r), 1);
        }
        time = p->options->memory == INFINITY
                   ? best_cut(before, own, low, high, time)
                   : best_small_cut(p, before, own, low, high, time, j, left, r);
    }
    return time;
}

/* best[(n - 1) * states + j] for all ranges from `source`; INFINITY where there is
 * none. `scratch` has room for one j's last stages. */
static ps_status fill_row(const program *p, const level *l, int32_t source, double *best,
                          double *scratch)
{
    const ps_states *s = p->states;
    int32_t N = l->machines;
    int64_t count = s->count;
    for (int32_t j = 0; j < s->count; j++) {
        int inside = source < 0 || p->before[j * count + source];
        for (int32_t n = 1; n <= N; n++)
            best[(n - 1) * count + j] = inside ? alone(p, l, source, j, n) : INFINITY;
        if (!inside || N == 1)
            continue;
        ps_status status = go_on(p->pace, ((int64_t)j + N) * N);
        if (status != PS_OK)
            return status;
        const double *last = scratch;
        if (l->last != NULL)
            last = l->last + j * count * (N - 1);
        else
            last_stages(p, l, j, scratch);
        int first_state = j == source + 1; /* the program starts to extend behind it */
        for (int32_t n = 2; n <= N; n++) {
            double time = best[(n - 1) * count + j];
            double fewer = best[(n - 2) * count + j];
            if (p->options->fewer && !first_state) {
                if (time != INFINITY && fewer == INFINITY)
                    return PS_ERR_RULE;
                time = fmin(time, fewer);
            }
            for (int32_t r = 1; r < (p->options->straight ? 2 : n); r++)
                time = extend(p, l, best, last, source, j, n, r, time);
            best[(n - 1) * count + j] = time;
        }
    }
    return PS_OK;
}

/* ---- the partition behind the objective ----------------------------------------------- */

typedef struct trace {
    const program *p;
    const level *levels;
    const int64_t *sizes; /* ranks of one machine of a level */
    int32_t *end_of_stage;
    ps_cut *cut;
} trace;

/* The last stage of the best plan for n machines up to j: its source in *k and its
 * replicas; *k = source where it is the only one. Recomputes what fill_row did, to
 * a hair: compilers may round the same expression differently in two places. */
static void last_step(const program *p, const level *l, int32_t source, const double *best,
                      int32_t j, int32_t *n, int32_t *k, int32_t *replicas)
{
    int64_t count = p->states->count;
    while (p->options->fewer && *n > 1 &&
           best[(*n - 2) * count + j] == best[(*n - 1) * count + j])
        (*n)--;
    double time = best[(*n - 1) * count + j] * (1.0 + 1e-12);
    *k = source;
    *replicas = *n;
    if (alone(p, l, source, j, *n) <= time)
        return;
    for (int64_t a = p->first[j]; a < p->first[j + 1]; a++) {
        int32_t from = p->ancestors[a];
        if (source >= 0 && !p->before[from * count + source])
            continue;
        for (int32_t r = 1; r < (p->options->straight ? 2 : *n); r++)
            if (best[(*n - r - 1) * count + from] <= time &&
                last_stage(p, l, from, j, r) <= time &&
                !too_big(p, from, j, l->machines - *n, r)) {
                *k = from;
                *replicas = r;
                return;
            }
    }
}

/* Lay the best plan for source..target out from rank `base` on; *stage counts. */
static ps_status expand(const trace *t, int32_t depth, int32_t source, int32_t target,
                        int64_t base, int32_t *stage)
{
    if (depth < 0) { /* one rank */
        t->cut->stage_of_rank[base] = *stage;
        t->end_of_stage[*stage] = target;
        (*stage)++;
        return PS_OK;
    }
    const level *l = &t->levels[depth];
    int32_t N = l->machines;
    double *best = NULL, *scratch = NULL;
    int32_t *steps = NULL; /* source, target, replicas; last stage first */
    ps_status status = ps_alloc((int64_t)t->p->states->count * N, sizeof *best, (void **)&best);
    if (status == PS_OK)
        status = ps_alloc((int64_t)t->p->states->count * N, sizeof *scratch, (void **)&scratch);
    if (status == PS_OK)
        status = ps_alloc(3 * (int64_t)N, sizeof *steps, (void **)&steps);
    if (status == PS_OK)
        status = fill_row(t->p, l, source, best, scratch);
    if (status != PS_OK)
        goto done;
    int32_t count = 0;
    int32_t left = N;
    for (int32_t j = target; j != source && count < N;) {
        int32_t *step = steps + 3 * (int64_t)count++;
        step[1] = j;
        last_step(t->p, l, source, best, j, &left, &step[0], &step[2]);
        left -= step[2];
        j = step[0];
    }
    for (int32_t i = count - 1; i >= 0 && status == PS_OK; i--) {
        const int32_t *step = steps + 3 * (int64_t)i;
        int32_t first = *stage;
        for (int32_t copy = 0; copy < step[2] && status == PS_OK; copy++) {
            *stage = first;
            status = expand(t, depth - 1, step[0], step[1], base, stage);
            base += t->sizes[depth];
        }
    }
done:
    free(steps);
    free(scratch);
    free(best);
    return status;
}

static void name_layers(const trace *t, int32_t n, int32_t num_stages)
{
    const ps_states *states = t->p->states;
    for (int32_t i = 0; i < n; i++)
        t->cut->stage_of_layer[i] = -1;
    for (int32_t s = num_stages - 1; s >= 0; s--) {
        const uint64_t *inside = states->inside + (int64_t)t->end_of_stage[s] * states->words;
        for (int32_t i = 0; i < n; i++)
            if (inside[i / 64] >> (i % 64) & 1)
                t->cut->stage_of_layer[i] = s;
    }
}

/* ---- all levels ------------------------------------------------------------------------- */

/* Each state's ancestors, as a list and as a matrix. */
static ps_status make_program(const ps_states *states, int64_t **first, int32_t **ancestors,
                              uint8_t **before)
{
    int64_t count = states->count;
    int64_t pairs = 0;
    ps_status status = ps_alloc(count + 1, sizeof **first, (void **)first);
    if (status == PS_OK)
        status = ps_alloc_zeroed(count * count, 1, (void **)before);
    if (status != PS_OK)
        return status;
    for (int32_t j = 0; j < count; j++) {
        (*first)[j] = pairs;
        for (int32_t k = 0; k < j; k++)
            if (ps_states_before(states, k, j)) {
                (*before)[j * count + k] = 1;
                pairs++;
            }
    }
    (*first)[count] = pairs;
    status = ps_alloc(pairs, sizeof **ancestors, (void **)ancestors);
    for (int32_t j = 0; j < count && status == PS_OK; j++) {
        int64_t at = (*first)[j];
        for (int32_t k = 0; k < j; k++)
            if ((*before)[j * count + k])
                (*ancestors)[at++] = k;
    }
    return status;
}

/* last_stages() of all states, so that the rows of a level do not repeat them. */
static ps_status make_last(const program *p, level *l, double **last)
{
    int64_t cells;
    int64_t count = p->states->count;
    ps_status status = ps_mul(count * count, l->machines - 1, &cells);
    if (status != PS_OK || cells > MAX_TABLE || cells == 0)
        return status;
    status = ps_alloc(cells, sizeof **last, (void **)last);
    if (status != PS_OK)
        return status;
    for (int32_t j = 0; j < p->states->count; j++)
        last_stages(p, l, j, *last + j * count * (l->machines - 1));
    l->last = *last;
    return PS_OK;
}

/* The grid of state_at(): some cells a state, over all of the compute. */
static ps_status make_grid(program *p, int32_t **first_in_cell)
{
    int32_t count = p->states->count;
    double total = p->states->compute[count - 1];
    p->last_cell = 4 * count;
    double rate = p->last_cell / total; /* without compute, or next to it: one cell */
    p->cells_per_second = isfinite(rate) ? rate : 0.0;
    ps_status status =
        ps_alloc((int64_t)p->last_cell + 2, sizeof **first_in_cell, (void **)first_in_cell);
    if (status != PS_OK)
        return status;
    int32_t s = 0;
    for (int32_t cell = 0; cell <= p->last_cell; cell++) {
        while (s < count && p->states->compute[s] * p->cells_per_second < cell)
            s++;
        (*first_in_cell)[cell] = s;
    }
    (*first_in_cell)[p->last_cell + 1] = count;
    p->first_in_cell = *first_in_cell;
    return PS_OK;
}

/* The next level's costs: the best time of every range on all machines of this one. */
static ps_status all_ranges(const program *p, level *l, double *next)
{
    int32_t count = p->states->count;
    int64_t cells = (int64_t)count * l->machines;
    double *best = NULL, *scratch = NULL, *last = NULL;
    ps_status status = make_last(p, l, &last);
    if (status == PS_OK)
        status = ps_alloc(cells, sizeof *best, (void **)&best);
    if (status == PS_OK)
        status = ps_alloc(cells, sizeof *scratch, (void **)&scratch);
    for (int32_t source = -1; source < count && status == PS_OK; source++) {
        status = fill_row(p, l, source, best, scratch);
        if (status == PS_OK)
            memcpy(next + (int64_t)(source + 1) * count,
                   best + (int64_t)(l->machines - 1) * count, (size_t)count * sizeof *next);
    }
    l->last = NULL;
    free(last);
    free(scratch);
    free(best);
    return status;
}

ps_status ps_compat_partition(const ps_layers *layers, const ps_cluster *cluster,
                              const ps_compat *options, int32_t limit, const ps_poll *poll,
                              ps_cut *cut)
{
    ps_states states = {0};
    int64_t *first = NULL;
    int32_t *ancestors = NULL, *end_of_stage = NULL, *first_in_cell = NULL;
    uint8_t *before = NULL;
    double *tables[PS_MAX_LEVELS] = {0};
    double *best = NULL, *scratch = NULL;
    int64_t sizes[PS_MAX_LEVELS];
    level levels[PS_MAX_LEVELS];
    int64_t ranks = 1;
    ps_status status = cluster->levels < 1               ? PS_ERR_TOO_SMALL
                       : cluster->levels > PS_MAX_LEVELS ? PS_ERR_TOO_LARGE
                                                         : ps_layers_check(layers);
    for (int32_t i = 0; i < cluster->levels && status == PS_OK; i++) {
        sizes[i] = ranks;
        status = ps_mul(ranks, cluster->counts[i], &ranks);
    }
    if (status == PS_OK)
        status = ps_states_pipedream(layers, limit, &states);
    if (status == PS_OK)
        status = make_program(&states, &first, &ancestors, &before);
    if (status == PS_OK)
        status = ps_alloc(ranks, sizeof *end_of_stage, (void **)&end_of_stage);
    if (status != PS_OK)
        goto done;
    pacer pace = {poll, 0};
    program p = {&states, options, first, ancestors, before, NULL, 0.0, 0, &pace};
    status = make_grid(&p, &first_in_cell);
    for (int32_t i = 0; i < cluster->levels && status == PS_OK; i++) {
        levels[i].machines = cluster->counts[i];
        levels[i].bandwidth = cluster->bandwidth[i];
        levels[i].inner = i == 0 ? 1.0 : (double)cluster->counts[i - 1];
        levels[i].of = i == 0 ? NULL : tables[i - 1];
        levels[i].share = 1.0 / (double)sizes[i];
        levels[i].last = NULL;
        if (i == cluster->levels - 1)
            break;
        status = ps_alloc((int64_t)(states.count + 1) * states.count, sizeof *tables[i],
                          (void **)&tables[i]);
        if (status == PS_OK)
            status = all_ranges(&p, &levels[i], tables[i]);
    }
    const level *top = &levels[cluster->levels - 1];
    if (status == PS_OK)
        status = ps_alloc((int64_t)states.count * top->machines, sizeof *best, (void **)&best);
    if (status == PS_OK)
        status =
            ps_alloc((int64_t)states.count * top->machines, sizeof *scratch, (void **)&scratch);
    if (status == PS_OK)
        status = fill_row(&p, top, -1, best, scratch);
    if (status != PS_OK)
        goto done;
    cut->objective =
        best[(int64_t)states.count * top->machines - 1] /* last state, all machines */;
    cut->num_states = states.count;
    cut->exact = 1;
    if (cut->objective == INFINITY) {
        status = PS_ERR_INFEASIBLE;
        goto done;
    }
    trace t = {&p, levels, sizes, end_of_stage, cut};
    for (int64_t r = 0; r < ranks; r++)
        cut->stage_of_rank[r] = -1;
    cut->num_stages = 0;
    status = expand(&t, cluster->levels - 1, -1, states.count - 1, 0, &cut->num_stages);
    if (status == PS_OK)
        name_layers(&t, layers->n, cut->num_stages);
done:
    free(scratch);
    free(best);
    for (int32_t i = 0; i < PS_MAX_LEVELS; i++)
        free(tables[i]);
    free(first_in_cell);
    free(end_of_stage);
    free(before);
    free(ancestors);
    free(first);
    ps_states_free(&states);
    return status;
}
