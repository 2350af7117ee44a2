/* The default model: a dynamic programme from the last stage to the first, so that
 * the ranks behind a stage, and with them its weight versions, are known. */
#include "states.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORK_PER_POLL = 1 << 22 };

/* What stands in the middle of the work. A border is (stages behind it, state,
 * level of the link that crosses it, rank p at which the range before it ends,
 * busy ranks behind it). `behind` holds, for each border, the smallest objective of
 * the stages behind it, the traffic of the first of them over that link included. */
typedef struct plan {
    const ps_states *states;
    const ps_plan_options *options;
    const int32_t *first; /* rank: first rank of its block, [level * (N + 1) + rank] */
    double bandwidth[PS_MAX_LEVELS];
    double *behind;
    int64_t per_count, per_state, per_level, per_rank; /* strides of `behind` */
    int32_t N, levels;
    int32_t rank_choices; /* values of "busy ranks behind": 1 where it follows from p */
    int32_t most;         /* replicas of a stage */
    double bound;         /* some plan is this good: nothing worse is looked at */
    double slowest;       /* stage that is looked at: bound, or where stages are counted ... */
    int counting;         /* ... the best time: then the objective is their number */
    int64_t work;         /* since the caller was asked */
    int stop;             /* the caller said so: what is looked for is of no use any more */
    const ps_poll *poll;
} plan;

static int asked_to_stop(plan *d)
{
    if (d->work > WORK_PER_POLL) {
        d->work = 0;
        if (d->poll->ask != NULL && d->poll->ask(d->poll->context))
            d->stop = 1;
    }
    return d->stop;
}

static double *border(const plan *d, int32_t count, int32_t state, int32_t level, int32_t p,
                      int32_t busy)
{
    return d->behind + (d->per_count > 0 ? count * d->per_count : 0) + state * d->per_state +
           level * d->per_level + p * d->per_rank + (d->rank_choices > 1 ? busy : 0);
}

static int same_block(const plan *d, int32_t level, int32_t a, int32_t b)
{
    const int32_t *first = d->first + (int64_t)level * (d->N + 1);
    return first[a] == first[b];
}

/* The sums of one stage, between two states. */
typedef struct piece {
    double compute, weights, activation, in, out;
} piece;

static piece piece_between(const ps_states *s, int32_t k, int32_t j)
{
    piece x = {s->compute[j] - s->compute[k], s->parameters[j] - s->parameters[k],
               s->activation[j] - s->activation[k], s->crossing[k], s->crossing[j]};
    return x;
}

static double memory_of(const plan *d, const piece *x, int32_t r, int32_t busy)
{
    int32_t versions = (busy + r - 1) / r;
    return versions * (x->weights + x->activation + x->in) + d->options->optimizer * x->weights;
}

static double time_of(const plan *d, const piece *x, int32_t r, int32_t inside, int32_t link_in,
                      int32_t link_out)
{
    double compute = x->compute / r;
    double link = 2.0 * (r - 1) / r * x->weights / d->bandwidth[inside] / r +
                  2.0 * x->in / d->bandwidth[link_in] / r +
                  2.0 * x->out / d->bandwidth[link_out] / r;
    return d->options->overlap ? fmax(compute, link) : compute + link;
}

/* One stage in place: from the state at hand to j, on ranks q .. q + r - 1, with the
 * links before and behind, and `busy` ranks from it on. */
typedef struct choice {
    int32_t j, q, r, link_in, link_out, busy;
} choice;

/* What to look for in scan(): NULL to fill the borders before the state; else the
 * best first stage (link_in < 0) or the stage that gives a border its value. */
typedef struct wanted {
    int32_t link_in; /* -1: the first stage of all */
    int32_t p;       /* the range before ends here */
    int32_t busy;    /* ranks from this stage on, -1: any */
    double value;    /* out where link_in < 0 */
    choice found;    /* out */
    int any;         /* out */
} wanted;

static void offer(plan *d, int32_t count, int32_t k, const choice *c, double value,
                  wanted *want)
{
    if (want == NULL) {
        double *cell = border(d, count, k, c->link_in, c->q, c->busy);
        if (value < *cell)
            *cell = value;
        return;
    }
    int better;
    if (want->link_in < 0) /* the fewest ranks among the best */
        better = value < want->value ||
                 (value == want->value && (!want->any || c->busy < want->found.busy));
    else
        better = value == want->value && c->link_in == want->link_in && c->q >= want->p &&
                 same_block(d, c->link_in, want->p - 1, c->q - 1) &&
                 (want->busy < 0 || c->busy == want->busy) &&
                 (!want->any || c->q < want->found.q);
    if (better) {
        want->value = value;
        want->found = *c;
        want->any = 1;
    }
}

/* All that can stand before the stage: the links over which its input may come. */
static void place(plan *d, int32_t count, int32_t k, const piece *x, choice c, int32_t inside,
                  double rest, wanted *want)
{
    double bytes = memory_of(d, x, c.r, c.busy);
    if (bytes > d->options->memory)
        return;
    int first = want != NULL && want->link_in < 0;
    for (c.link_in = first ? 0 : inside; c.link_in < (first ? 1 : d->levels); c.link_in++) {
        /* The stage before ends at rank q or earlier, in one block with this one. */
        if (!first && !same_block(d, c.link_in, c.q - 1, c.q + c.r - 1))
            continue;
        double own = d->options->minimise_memory
                         ? bytes
                         : time_of(d, x, c.r, inside, c.link_in, c.link_out);
        if (d->counting && own > d->slowest)
            continue;
        double value = d->counting ? rest + 1.0 : fmax(own, rest);
        if (value <= d->bound)
            offer(d, count, k, &c, value, want);
    }
}

/* All stages k..j with `count` stages behind the border j. */
static void stages_between(plan *d, int32_t count, int32_t k, int32_t j, wanted *want)
{
    int last = j == d->states->count - 1;
    piece x = piece_between(d->states, k, j);
    if (last)
        x.out = 0.0;
    for (int32_t r = 1; r <= d->most; r++) {
        if (!d->options->minimise_memory && x.compute / r > d->slowest)
            continue;
        /* Before any but the first stage stands a rank. */
        int32_t q = want != NULL && want->link_in < 0 ? 0 : 1;
        for (; q + r <= d->N; q++) {
            d->work++;
            if (asked_to_stop(d))
                return;
            int32_t inside = 0;
            while (!same_block(d, inside, q, q + r - 1))
                inside++;
            choice c = {j, q, r, 0, inside, 0};
            if (last) {
                /* Without a count of busy ranks they must reach to the end. */
                if (d->rank_choices == 1 && d->levels == 1 && q + r != d->N)
                    continue;
                c.busy = r;
                place(d, count + 1, k, &x, c, inside, 0.0, want);
                d->work += d->levels;
                continue;
            }
            for (; c.link_out < d->levels; c.link_out++) {
                int32_t low = d->rank_choices > 1 ? 1 : d->N - q - r;
                int32_t high = d->N - q - r;
                d->work += (int64_t)d->levels * (high - low + 1);
                for (int32_t busy = low; busy <= high && busy > 0; busy++) {
                    double rest = *border(d, count, j, c.link_out, q + r, busy);
                    c.busy = busy + r;
                    if (rest <= d->bound)
                        place(d, count + 1, k, &x, c, inside, rest, want);
                }
            }
        }
    }
}

/* All first stages behind state k, with exactly `count` stages behind them. */
static void scan(plan *d, int32_t count, int32_t k, wanted *want)
{
    int32_t end = d->states->count - 1;
    for (int32_t j = k + 1; j <= end && !d->stop; j++) {
        if (d->options->num_stages > 0 && (count == 0) != (j == end))
            continue;
        if (ps_states_before(d->states, k, j))
            stages_between(d, count, k, j, want);
    }
}

/* Ranks may stay idle between two ranges, as long as the border's link still
 * covers them: the end of the range before may lie further to the left. On one
 * level nothing is gained by that. */
static void allow_gaps(plan *d, int32_t count, int32_t k)
{
    if (d->levels == 1)
        return;
    for (int32_t level = 0; level < d->levels; level++)
        for (int32_t p = d->N - 2; p >= 1; p--) {
            if (!same_block(d, level, p - 1, p))
                continue;
            for (int32_t busy = 0; busy < d->rank_choices; busy++) {
                double *here = border(d, count, k, level, p, busy);
                const double *right = border(d, count, k, level, p + 1, busy);
                if (*right < *here)
                    *here = *right;
            }
        }
}

static ps_status fill_borders(plan *d)
{
    int32_t counts = d->options->num_stages > 0 ? d->options->num_stages : 1;
    for (int32_t k = d->states->count - 2; k >= 1; k--)
        for (int32_t count = 0; count < counts; count++) {
            scan(d, count, k, NULL);
            allow_gaps(d, d->per_count > 0 ? count + 1 : 0, k);
            if (d->stop)
                return PS_ERR_INTERRUPTED;
        }
    return PS_OK;
}

/* Write the stages from the first on. PS_ERR_INFEASIBLE where there is no plan. */
static ps_status read_plan(plan *d, int32_t n, ps_cut *cut)
{
    const ps_states *states = d->states;
    int32_t count = d->options->num_stages > 0 ? d->options->num_stages - 1 : 0;
    wanted want = {.link_in = -1, .value = INFINITY, .busy = -1};
    scan(d, count, 0, &want);
    if (d->stop)
        return PS_ERR_INTERRUPTED;
    if (!want.any)
        return PS_ERR_INFEASIBLE;
    cut->objective = want.value;
    cut->num_stages = 0;
    for (int32_t r = 0; r < d->N; r++)
        cut->stage_of_rank[r] = -1;
    for (int32_t i = 0; i < n; i++)
        cut->stage_of_layer[i] = -1;
    for (int32_t k = 0; want.any;) {
        choice c = want.found;
        const uint64_t *inside = states->inside + (int64_t)c.j * states->words;
        for (int32_t r = c.q; r < c.q + c.r; r++)
            cut->stage_of_rank[r] = cut->num_stages;
        for (int32_t i = 0; i < n; i++)
            if (cut->stage_of_layer[i] < 0 && (inside[i / 64] >> (i % 64) & 1))
                cut->stage_of_layer[i] = cut->num_stages;
        cut->num_stages++;
        k = c.j;
        if (k == states->count - 1)
            break;
        int32_t busy = c.busy - c.r;
        want = (wanted){
            .link_in = c.link_out, .p = c.q + c.r, .busy = d->rank_choices > 1 ? busy : -1};
        want.value = *border(d, count, k, c.link_out, c.q + c.r, busy);
        count = d->per_count > 0 ? count - 1 : 0;
        scan(d, count, k, &want);
        if (d->stop)
            return PS_ERR_INTERRUPTED;
    }
    return PS_OK;
}

/* Solve for the fewest stages among the fastest plans, the time being known. */
static ps_status fewest_stages(plan *d, int64_t cells, int32_t n, ps_cut *cut)
{
    double time = cut->objective;
    d->counting = 1;
    d->slowest = time;
    d->bound = cut->num_stages; /* the plan at hand */
    for (int64_t i = 0; i < cells; i++)
        d->behind[i] = INFINITY;
    ps_status status = fill_borders(d);
    if (status == PS_OK)
        status = read_plan(d, n, cut);
    cut->objective = time;
    return status;
}

/* Solve over the given states; nothing worse than `bound` is looked at. With
 * `refine`, the fewest stages among the fastest plans. */
static ps_status solve(const ps_states *states, int32_t n, const ps_cluster *cluster,
                       const ps_plan_options *options, int32_t workers, const int32_t *first,
                       double bound, int refine, const ps_poll *poll, ps_cut *cut)
{
    plan d = {.states = states,
              .options = options,
              .first = first,
              .N = workers,
              .levels = cluster->levels,
              .bound = bound,
              .slowest = bound,
              .poll = poll};
    double slowest = INFINITY;
    for (int32_t i = 0; i < cluster->levels; i++) {
        slowest = fmin(slowest, cluster->bandwidth[i]);
        d.bandwidth[i] = slowest;
    }
    d.most = options->max_replicas > 0 && options->max_replicas < workers
                 ? options->max_replicas
                 : workers;
    int counted = options->minimise_memory || options->memory != INFINITY;
    d.rank_choices = counted && d.levels > 1 ? workers + 1 : 1;
    int64_t cells = 0;
    d.per_rank = d.rank_choices;
    ps_status status = ps_mul(d.per_rank, workers + 1, &d.per_level);
    if (status == PS_OK)
        status = ps_mul(d.per_level, d.levels, &d.per_state);
    if (status == PS_OK)
        status = ps_mul(d.per_state, states->count, &cells);
    if (status == PS_OK && options->num_stages > 0) {
        d.per_count = cells;
        status = ps_mul(cells, (int64_t)options->num_stages + 1, &cells);
    }
    if (status == PS_OK && cells > PS_MAX_BORDERS)
        status = PS_ERR_TOO_LARGE;
    if (status == PS_OK)
        status = ps_alloc(cells, sizeof *d.behind, (void **)&d.behind);
    if (status != PS_OK)
        goto done;
    for (int64_t i = 0; i < cells; i++)
        d.behind[i] = INFINITY;
    status = fill_borders(&d);
    if (status == PS_OK)
        status = read_plan(&d, n, cut);
    if (status == PS_OK && refine && !options->minimise_memory && options->num_stages == 0 &&
        cut->num_stages > 1)
        status = fewest_stages(&d, cells, n, cut);
done:
    free(d.behind);
    return status;
}

/* first[level * (N + 1) + rank]: the first rank of the rank's block on that level. */
static ps_status make_blocks(const ps_cluster *cluster, int32_t *workers, int32_t **first)
{
    if (cluster->levels < 1)
        return PS_ERR_TOO_SMALL;
    if (cluster->levels > PS_MAX_LEVELS)
        return PS_ERR_TOO_LARGE;
    int64_t total = 1;
    for (int32_t i = 0; i < cluster->levels; i++) {
        if (cluster->counts[i] < 1)
            return PS_ERR_TOO_SMALL;
        if (!(cluster->bandwidth[i] > 0.0))
            return PS_ERR_COST;
        ps_status status = ps_mul(total, cluster->counts[i], &total);
        if (status != PS_OK)
            return status;
    }
    if (total > INT32_MAX / 2)
        return PS_ERR_OVERFLOW;
    *workers = (int32_t)total;
    ps_status status = ps_alloc(cluster->levels * (total + 1), sizeof **first, (void **)first);
    int32_t size = 1;
    for (int32_t i = 0; i < cluster->levels && status == PS_OK; i++) {
        size *= cluster->counts[i];
        for (int32_t r = 0; r <= *workers; r++)
            (*first)[i * (*workers + 1) + r] = r / size * size;
    }
    return status;
}

ps_status ps_plan(const ps_layers *layers, const ps_cluster *cluster,
                  const ps_plan_options *options, const ps_poll *poll, ps_cut *cut)
{
    ps_states all = {0};
    ps_states line = {0};
    int32_t *first = NULL;
    int32_t workers = 0;
    double bound = DBL_MAX; /* not infinite: that is what cannot be */
    ps_status status = ps_layers_check(layers);
    if (status == PS_OK)
        status = make_blocks(cluster, &workers, &first);
    if (status == PS_OK)
        status = ps_states_linear(layers, &line);
    if (status == PS_OK) {
        cut->exact = 1;
        status = ps_states_all(layers, options->limit, options->num_stages == 0, &all);
        if (status == PS_ERR_TOO_LARGE) {
            cut->exact = 0;
            status = PS_OK;
        }
    }
    if (status != PS_OK)
        goto done;
    /* The layers in line come first: their answer is the answer, or bounds the other. */
    if (!cut->exact || all.count > line.count) {
        status = solve(&line, layers->n, cluster, options, workers, first, bound, !cut->exact,
                       poll, cut);
        cut->num_states = line.count;
        if (!cut->exact || (status != PS_OK && status != PS_ERR_INFEASIBLE))
            goto done;
        if (status == PS_OK)
            bound = cut->objective;
    }
    status = solve(&all, layers->n, cluster, options, workers, first, bound, 1, poll, cut);
    cut->num_states = all.count;
done:
    ps_states_free(&line);
    ps_states_free(&all);
    free(first);
    return status;
}
