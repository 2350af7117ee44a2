#include "states.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- sets of layers, and a table that finds them again ------------------------------ */

static int has(const uint64_t *set, int32_t item)
{
    return (int)(set[item / 64] >> (item % 64) & 1);
}

static void put(uint64_t *set, int32_t item)
{
    set[item / 64] |= UINT64_C(1) << (item % 64);
}

static void drop(uint64_t *set, int32_t item)
{
    set[item / 64] &= ~(UINT64_C(1) << (item % 64));
}

static int within(const uint64_t *a, const uint64_t *b, int32_t words)
{
    for (int32_t w = 0; w < words; w++)
        if (a[w] & ~b[w])
            return 0;
    return 1;
}

static int meets(const uint64_t *a, const uint64_t *b, int32_t words)
{
    for (int32_t w = 0; w < words; w++)
        if (a[w] & b[w])
            return 1;
    return 0;
}

static void join(uint64_t *a, const uint64_t *b, int32_t words)
{
    for (int32_t w = 0; w < words; w++)
        a[w] |= b[w];
}

/* Distinct sets in the order in which they came, with open addressing. */
typedef struct set_table {
    uint64_t *sets; /* room * words */
    int32_t *slots; /* num_slots, -1: free */
    int64_t num_slots;
    int32_t words;
    int32_t count;
    int32_t room;
    int32_t limit;
} set_table;

static uint64_t hash_set(const uint64_t *set, int32_t words)
{
    uint64_t h = UINT64_C(0x9e3779b97f4a7c15);
    for (int32_t w = 0; w < words; w++) {
        h ^= set[w];
        h *= UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    return h;
}

static int64_t find_slot(const set_table *table, const uint64_t *set)
{
    int64_t slot = (int64_t)(hash_set(set, table->words) & (uint64_t)(table->num_slots - 1));
    while (table->slots[slot] >= 0 &&
           memcmp(table->sets + (int64_t)table->slots[slot] * table->words, set,
                  (size_t)table->words * sizeof *set) != 0)
        slot = (slot + 1) & (table->num_slots - 1);
    return slot;
}

/* Twice the room, and the slots at most half full. */
static ps_status grow(set_table *table)
{
    int32_t room = table->room == 0 ? 64 : table->room * 2;
    uint64_t *sets = NULL;
    int32_t *slots = NULL;
    ps_status status = ps_alloc((int64_t)room * table->words, sizeof *sets, (void **)&sets);
    if (status == PS_OK)
        status = ps_alloc((int64_t)room * 2, sizeof *slots, (void **)&slots);
    if (status != PS_OK) {
        free(sets);
        return status;
    }
    if (table->count > 0)
        memcpy(sets, table->sets, (size_t)table->count * (size_t)table->words * sizeof *sets);
    free(table->sets);
    free(table->slots);
    table->sets = sets;
    table->slots = slots;
    table->room = room;
    table->num_slots = (int64_t)room * 2;
    for (int64_t i = 0; i < table->num_slots; i++)
        slots[i] = -1;
    for (int32_t i = 0; i < table->count; i++)
        slots[find_slot(table, sets + (int64_t)i * table->words)] = i;
    return PS_OK;
}

/* Add a set unless it is there. PS_ERR_TOO_LARGE beyond the limit. */
static ps_status add_set(set_table *table, const uint64_t *set)
{
    if (table->count == table->room) {
        ps_status status = grow(table);
        if (status != PS_OK)
            return status;
    }
    int64_t slot = find_slot(table, set);
    if (table->slots[slot] >= 0)
        return PS_OK;
    if (table->count >= table->limit)
        return PS_ERR_TOO_LARGE;
    memcpy(table->sets + (int64_t)table->count * table->words, set,
           (size_t)table->words * sizeof *set);
    table->slots[slot] = table->count++;
    return PS_OK;
}

static void free_table(set_table *table)
{
    free(table->sets);
    free(table->slots);
}

/* ---- the graph as sets --------------------------------------------------------------- */

typedef struct graph {
    const ps_layers *layers;
    int32_t words;
    uint64_t *feeds;  /* n sets: direct successors */
    uint64_t *fed;    /* n sets: direct predecessors */
    uint64_t *before; /* n sets: all predecessors */
    uint64_t *after;  /* n sets: all successors */
} graph;

static uint64_t *row(const graph *g, uint64_t *sets, int32_t i)
{
    return sets + (int64_t)i * g->words;
}

static void free_graph(graph *g)
{
    free(g->feeds);
    free(g->fed);
    free(g->before);
    free(g->after);
}

static ps_status make_graph(const ps_layers *layers, graph *g)
{
    int32_t n = layers->n;
    memset(g, 0, sizeof *g);
    g->layers = layers;
    g->words = (n + 63) / 64;
    int64_t cells = (int64_t)n * g->words;
    ps_status status = ps_alloc_zeroed(cells, sizeof *g->feeds, (void **)&g->feeds);
    if (status == PS_OK)
        status = ps_alloc_zeroed(cells, sizeof *g->fed, (void **)&g->fed);
    if (status == PS_OK)
        status = ps_alloc_zeroed(cells, sizeof *g->before, (void **)&g->before);
    if (status == PS_OK)
        status = ps_alloc_zeroed(cells, sizeof *g->after, (void **)&g->after);
    if (status != PS_OK)
        return status;
    for (int64_t e = 0; e < layers->num_edges; e++) {
        int32_t source = layers->edges[2 * e];
        int32_t target = layers->edges[2 * e + 1];
        put(row(g, g->feeds, source), target);
        put(row(g, g->fed, target), source);
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < i; k++)
            if (has(row(g, g->fed, i), k)) {
                put(row(g, g->before, i), k);
                join(row(g, g->before, i), row(g, g->before, k), g->words);
            }
    for (int32_t i = n - 1; i >= 0; i--)
        for (int32_t k = i + 1; k < n; k++)
            if (has(row(g, g->feeds, i), k)) {
                put(row(g, g->after, i), k);
                join(row(g, g->after, i), row(g, g->after, k), g->words);
            }
    return PS_OK;
}

ps_status ps_layers_check(const ps_layers *layers)
{
    if (layers->n < 1)
        return PS_ERR_TOO_SMALL;
    for (int64_t e = 0; e < layers->num_edges; e++) {
        int32_t source = layers->edges[2 * e];
        int32_t target = layers->edges[2 * e + 1];
        if (source < 0 || source >= target || target >= layers->n)
            return PS_ERR_OP_RANGE;
    }
    double total = 0.0;
    for (int32_t i = 0; i < layers->n; i++) {
        if (!(layers->compute[i] >= 0.0) || !(layers->activation[i] >= 0.0) ||
            !(layers->parameters[i] >= 0.0))
            return PS_ERR_COST;
        total += layers->compute[i] + layers->activation[i] + layers->parameters[i];
    }
    return isfinite(total) ? PS_OK : PS_ERR_COST;
}

/* ---- states --------------------------------------------------------------------------- */

void ps_states_free(ps_states *states)
{
    free(states->inside);
    free(states->compute);
    free(states->activation);
    free(states->parameters);
    free(states->crossing);
    memset(states, 0, sizeof *states);
}

static ps_status room_for_states(int32_t count, int32_t words, ps_states *states)
{
    states->words = words;
    states->count = count;
    ps_status status = ps_alloc_zeroed((int64_t)count * words, sizeof *states->inside,
                                       (void **)&states->inside);
    double **sums[] = {&states->compute, &states->activation, &states->parameters,
                       &states->crossing};
    for (size_t i = 0; i < sizeof sums / sizeof *sums && status == PS_OK; i++)
        status = ps_alloc_zeroed(count, sizeof **sums[i], (void **)sums[i]);
    return status;
}

static void add_up(const ps_layers *layers, ps_states *states, int32_t s)
{
    const uint64_t *set = states->inside + (int64_t)s * states->words;
    for (int32_t i = 0; i < layers->n; i++)
        if (has(set, i)) {
            states->compute[s] += layers->compute[i];
            states->activation[s] += layers->activation[i];
            states->parameters[s] += layers->parameters[i];
        }
}

typedef struct rank_of_state {
    double compute;
    int32_t size;
    int32_t index;
} rank_of_state;

static int compare_ranks(const void *a, const void *b)
{
    const rank_of_state *x = a;
    const rank_of_state *y = b;
    if (x->compute != y->compute)
        return x->compute > y->compute ? 1 : -1;
    if (x->size != y->size)
        return x->size - y->size;
    return x->index - y->index;
}

/* Fill `order` with 0 .. count-1: less compute before the cut first, then fewer
 * layers, so that a prefix stands before all that contain it. */
static ps_status order_prefixes(const ps_layers *layers, const uint64_t *sets, int32_t count,
                                int32_t words, int32_t *order)
{
    rank_of_state *ranks = NULL;
    ps_status status = ps_alloc(count, sizeof *ranks, (void **)&ranks);
    if (status != PS_OK)
        return status;
    for (int32_t s = 0; s < count; s++) {
        rank_of_state rank = {0.0, 0, s};
        for (int32_t i = 0; i < layers->n; i++)
            if (has(sets + (int64_t)s * words, i)) {
                rank.compute += layers->compute[i];
                rank.size++;
            }
        ranks[s] = rank;
    }
    qsort(ranks, (size_t)count, sizeof *ranks, compare_ranks);
    for (int32_t s = 0; s < count; s++)
        order[s] = ranks[s].index;
    free(ranks);
    return PS_OK;
}

/* Sorted states with their sums out of the sets in a table. */
static ps_status finish_prefixes(const graph *g, const set_table *table, ps_states *states)
{
    const ps_layers *layers = g->layers;
    int32_t *order = NULL;
    ps_status status = ps_alloc(table->count, sizeof *order, (void **)&order);
    if (status == PS_OK)
        status = order_prefixes(layers, table->sets, table->count, g->words, order);
    if (status == PS_OK)
        status = room_for_states(table->count, g->words, states);
    if (status != PS_OK)
        goto done;
    for (int32_t s = 0; s < table->count; s++) {
        uint64_t *set = states->inside + (int64_t)s * g->words;
        memcpy(set, table->sets + (int64_t)order[s] * g->words, (size_t)g->words * sizeof *set);
        add_up(layers, states, s);
        for (int32_t i = 0; i < layers->n; i++)
            if (has(set, i) && !within(row(g, g->feeds, i), set, g->words))
                states->crossing[s] += layers->activation[i];
    }
done:
    free(order);
    return status;
}

static int is_free(const ps_layers *layers, int32_t i)
{
    return layers->compute[i] == 0.0 && layers->activation[i] == 0.0 &&
           layers->parameters[i] == 0.0;
}

/* Layers stand in an order in which they can run: one pass closes the set. */
static void close_set(const graph *g, uint64_t *set)
{
    for (int32_t i = 0; i < g->layers->n; i++)
        if (!has(set, i) && is_free(g->layers, i) && within(row(g, g->fed, i), set, g->words))
            put(set, i);
}

ps_status ps_states_all(const ps_layers *layers, int32_t limit, int join_free,
                        ps_states *states)
{
    graph g;
    set_table table = {.words = (layers->n + 63) / 64, .limit = limit};
    uint64_t *set = NULL;
    ps_status status = make_graph(layers, &g);
    if (status == PS_OK)
        status = ps_alloc_zeroed(g.words, sizeof *set, (void **)&set);
    if (status != PS_OK)
        goto done;
    status = add_set(&table, set);
    for (int32_t s = 0; s < table.count && status == PS_OK; s++)
        for (int32_t i = 0; i < layers->n && status == PS_OK; i++) {
            const uint64_t *from = table.sets + (int64_t)s * g.words;
            if (has(from, i) || !within(row(&g, g.fed, i), from, g.words))
                continue;
            memcpy(set, from, (size_t)g.words * sizeof *set);
            put(set, i);
            if (join_free)
                close_set(&g, set);
            status = add_set(&table, set);
        }
    if (status == PS_OK)
        status = finish_prefixes(&g, &table, states);
done:
    free(set);
    free_table(&table);
    free_graph(&g);
    return status;
}

ps_status ps_states_linear(const ps_layers *layers, ps_states *states)
{
    int32_t n = layers->n;
    graph g;
    set_table table = {.words = (n + 63) / 64, .limit = INT32_MAX};
    uint64_t *set = NULL;
    int32_t *queue = NULL;
    ps_status status = make_graph(layers, &g);
    if (status == PS_OK)
        status = ps_alloc_zeroed(g.words, sizeof *set, (void **)&set);
    if (status == PS_OK)
        status = ps_alloc(n, sizeof *queue, (void **)&queue);
    if (status != PS_OK)
        goto done;
    status = add_set(&table, set);
    for (int32_t i = 0; i < n && status == PS_OK; i++) {
        put(set, i);
        status = add_set(&table, set);
    }
    /* Breadth first: a layer enters the queue once all that feed it have left. */
    memset(set, 0, (size_t)g.words * sizeof *set);
    int32_t tail = 0;
    for (int32_t i = 0; i < n; i++)
        if (within(row(&g, g.fed, i), set, g.words))
            queue[tail++] = i;
    for (int32_t head = 0; head < tail && status == PS_OK; head++) {
        int32_t i = queue[head];
        put(set, i);
        status = add_set(&table, set);
        for (int32_t k = i + 1; k < n; k++)
            if (has(row(&g, g.feeds, i), k) && within(row(&g, g.fed, k), set, g.words))
                queue[tail++] = k;
    }
    if (status == PS_OK)
        status = finish_prefixes(&g, &table, states);
done:
    free(queue);
    free(set);
    free_table(&table);
    free_graph(&g);
    return status;
}

/* ---- the published program's antichains ----------------------------------------------- */

/* out = A plus every predecessor of a member that still feeds a layer which is not
 * the member and not one of its predecessors. */
static void augment(const graph *g, const uint64_t *antichain, uint64_t *out)
{
    memcpy(out, antichain, (size_t)g->words * sizeof *out);
    for (int32_t member = 0; member < g->layers->n; member++) {
        if (!has(antichain, member))
            continue;
        const uint64_t *known = row(g, g->before, member);
        for (int32_t i = 0; i < member; i++) {
            if (!has(known, i) || has(out, i))
                continue;
            const uint64_t *targets = row(g, g->feeds, i);
            for (int32_t w = 0; w < g->words; w++) {
                uint64_t open = targets[w] & ~known[w];
                if (w == member / 64)
                    open &= ~(UINT64_C(1) << (member % 64));
                if (open != 0) {
                    put(out, i);
                    break;
                }
            }
        }
    }
}

/* Drop the members that are predecessors of others. */
static void keep_latest(const graph *g, uint64_t *set, uint64_t *scratch)
{
    memset(scratch, 0, (size_t)g->words * sizeof *scratch);
    for (int32_t i = 0; i < g->layers->n; i++)
        if (has(set, i))
            join(scratch, row(g, g->before, i), g->words);
    for (int32_t w = 0; w < g->words; w++)
        set[w] &= ~scratch[w];
}

static ps_status walk_antichains(const graph *g, set_table *table, uint64_t *scratch)
{
    uint64_t *wide = scratch;
    uint64_t *next = scratch + g->words;
    uint64_t *spare = scratch + 2 * (int64_t)g->words;
    int32_t n = g->layers->n;
    memset(next, 0, (size_t)g->words * sizeof *next);
    put(next, 0); /* the first source: layers stand in an order in which they can run */
    ps_status status = add_set(table, next);
    for (int32_t s = 0; s < table->count && status == PS_OK; s++) {
        augment(g, table->sets + (int64_t)s * g->words, wide);
        for (int32_t old = 0; old < n && status == PS_OK; old++) {
            if (!has(wide, old))
                continue;
            for (int32_t new = old + 1; new < n &&status == PS_OK; new ++) {
                if (!has(row(g, g->feeds, old), new) ||
                    has(table->sets + (int64_t)s * g->words, new) ||
                    meets(row(g, g->after, new), wide, g->words))
                    continue;
                memcpy(next, wide, (size_t)g->words * sizeof *next);
                drop(next, old);
                put(next, new);
                keep_latest(g, next, spare);
                status = add_set(table, next);
            }
        }
    }
    return status;
}

ps_status ps_states_pipedream(const ps_layers *layers, int32_t limit, ps_states *states)
{
    graph g;
    set_table table = {.words = (layers->n + 63) / 64, .limit = limit};
    uint64_t *scratch = NULL, *prefixes = NULL;
    int32_t *order = NULL;
    ps_status status = make_graph(layers, &g);
    if (status == PS_OK)
        status = ps_alloc(3 * (int64_t)g.words, sizeof *scratch, (void **)&scratch);
    if (status == PS_OK)
        status = walk_antichains(&g, &table, scratch);
    if (status == PS_OK)
        status = ps_alloc_zeroed((int64_t)table.count * g.words, sizeof *prefixes,
                                 (void **)&prefixes);
    if (status == PS_OK)
        status = ps_alloc(table.count, sizeof *order, (void **)&order);
    if (status != PS_OK)
        goto done;
    for (int32_t s = 0; s < table.count; s++) {
        uint64_t *prefix = row(&g, prefixes, s);
        memcpy(prefix, table.sets + (int64_t)s * g.words, (size_t)g.words * sizeof *prefix);
        for (int32_t i = 0; i < layers->n; i++)
            if (has(table.sets + (int64_t)s * g.words, i))
                join(prefix, row(&g, g.before, i), g.words);
    }
    status = order_prefixes(layers, prefixes, table.count, g.words, order);
    if (status == PS_OK)
        status = room_for_states(table.count, g.words, states);
    if (status != PS_OK)
        goto done;
    for (int32_t s = 0; s < table.count; s++) {
        memcpy(states->inside + (int64_t)s * g.words, row(&g, prefixes, order[s]),
               (size_t)g.words * sizeof *prefixes);
        add_up(layers, states, s);
        augment(&g, table.sets + (int64_t)order[s] * g.words, scratch);
        for (int32_t i = 0; i < layers->n; i++)
            if (has(scratch, i))
                states->crossing[s] += layers->activation[i];
    }
done:
    free(order);
    free(prefixes);
    free(scratch);
    free_table(&table);
    free_graph(&g);
    return status;
}
