#include "../ps_partition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The chain as the search sees it; borrows all it points to. */
typedef struct chain {
    const double *sum; /* n + 1 running sums */
    int64_t n;
    double first;
    double last;
} chain;

static double part(const chain *c, int64_t i, int64_t j)
{
    double cost = c->sum[j] - c->sum[i];
    if (i == 0)
        cost += c->first;
    if (j == c->n)
        cost += c->last;
    return cost;
}

/* The largest j <= high with part(i, j) <= limit; i where there is none. */
static int64_t furthest(const chain *c, int64_t i, int64_t high, double limit)
{
    int64_t low = i;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (part(c, i, middle) <= limit)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Whether k parts of at most `limit` exist; then *reached is their largest. Each
 * part takes all it can, but leaves one layer for each part behind it. */
static int fits(const chain *c, int64_t k, double limit, double *reached)
{
    int64_t at = 0;
    double largest = 0.0;
    for (int64_t t = 0; t < k; t++) {
        int64_t end = t == k - 1 ? c->n : furthest(c, at, c->n - (k - 1 - t), limit);
        double cost = part(c, at, end);
        if (end == at || cost > limit)
            return 0;
        largest = fmax(largest, cost);
        at = end;
    }
    *reached = largest;
    return 1;
}

/* Non-negative doubles are ordered as their bit patterns are. */
static double between(double low, double high)
{
    uint64_t a, b;
    memcpy(&a, &low, sizeof a);
    memcpy(&b, &high, sizeof b);
    a += (b - a) / 2;
    memcpy(&low, &a, sizeof low);
    return low;
}

static double smallest_largest(const chain *c, int64_t k)
{
    double low = 0.0;
    double high = part(c, 0, c->n);
    for (int64_t i = 0; i < c->n; i++) /* a layer is never cut */
        low = fmax(low, c->sum[i + 1] - c->sum[i]);
    double reached;
    if (fits(c, k, low, &reached))
        return reached; /* not above low, and no partition is below */
    /* The mean is a bound too; a hair less keeps rounding out of the argument. */
    double mean = part(c, 0, c->n) / (double)k * (1.0 - 1e-9);
    if (mean > low && !fits(c, k, mean, &reached))
        low = mean;
    if (fits(c, k, high, &reached))
        high = reached;
    for (;;) { /* low does not fit, high does and is some partition's value */
        double middle = between(low, high);
        if (middle <= low)
            return high;
        if (fits(c, k, middle, &reached))
            high = reached;
        else
            low = middle;
    }
}

/* The lexicographically smallest cuts: latest[t] is the smallest start from which
 * the parts t .. k-1 can still hold the rest. */
static void leftmost_cuts(const chain *c, int64_t k, double limit, int64_t *cuts)
{
    cuts[k] = c->n;
    for (int64_t t = k - 1; t >= 1; t--) {
        int64_t low = t;
        int64_t high = cuts[t + 1] - 1;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (part(c, middle, cuts[t + 1]) <= limit)
                high = middle;
            else
                low = middle + 1;
        }
        cuts[t] = low;
    }
    cuts[0] = 0;
    for (int64_t t = 1; t < k; t++)
        if (cuts[t] <= cuts[t - 1])
            cuts[t] = cuts[t - 1] + 1;
}

/* Fewest bytes over the cuts, from the back: fewest[i] for t .. k-1 parts from
 * layer i. The ends that a part may take move left as i does, so a queue of
 * candidates with rising bytes gives each minimum in constant time. */
static ps_status cheapest_cuts(const chain *c, int64_t k, double limit, const double *bytes,
                               int64_t *cuts)
{
    int64_t n = c->n;
    double *fewest = NULL, *next = NULL;
    int64_t *queue = NULL, *choice = NULL;
    int64_t cells;
    ps_status status = ps_mul(k, n + 1, &cells);
    if (status == PS_OK)
        status = ps_alloc(n + 1, sizeof *fewest, (void **)&fewest);
    if (status == PS_OK)
        status = ps_alloc(n + 1, sizeof *next, (void **)&next);
    if (status == PS_OK)
        status = ps_alloc(n + 1, sizeof *queue, (void **)&queue);
    if (status == PS_OK)
        status = ps_alloc(cells, sizeof *choice, (void **)&choice);
    if (status != PS_OK)
        goto done;
    for (int64_t i = 0; i <= n; i++)
        next[i] = i == n ? 0.0 : INFINITY;
    for (int64_t t = k - 1; t >= 0; t--) {
        int64_t head = 0, tail = 0; /* queue[head .. tail), ends falling */
        int64_t end = n;            /* the next end to enter, from the right */
        for (int64_t i = n; i >= 0; i--)
            fewest[i] = INFINITY;
        for (int64_t i = n - 1; i >= 0; i--) {
            for (; end > i; end--) {
                double price = next[end] + (end < n ? bytes[end - 1] : 0.0);
                if (price == INFINITY)
                    continue;
                while (tail > head) { /* the smaller end wins a tie */
                    int64_t other = queue[tail - 1];
                    if (next[other] + (other < n ? bytes[other - 1] : 0.0) < price)
                        break;
                    tail--;
                }
                queue[tail++] = end;
            }
            while (tail > head && part(c, i, queue[head]) > limit)
                head++;
            if (tail > head) {
                int64_t best = queue[head];
                fewest[i] = next[best] + (best < n ? bytes[best - 1] : 0.0);
                choice[t * (n + 1) + i] = best;
            }
        }
        double *swap = next;
        next = fewest;
        fewest = swap;
    }
    cuts[0] = 0;
    for (int64_t t = 0; t < k; t++)
        cuts[t + 1] = choice[t * (n + 1) + cuts[t]];
done:
    free(choice);
    free(queue);
    free(next);
    free(fewest);
    return status;
}

static ps_status check_costs(const double *costs, int64_t n, int64_t k, double first,
                             double last)
{
    if (k < 1)
        return PS_ERR_TOO_SMALL;
    if (k > n)
        return PS_ERR_TOO_LARGE;
    double total = first + last;
    if (!(first >= 0.0) || !(last >= 0.0))
        return PS_ERR_COST;
    for (int64_t i = 0; i < n; i++) {
        if (!(costs[i] >= 0.0))
            return PS_ERR_COST;
        total += costs[i];
    }
    return isfinite(total) ? PS_OK : PS_ERR_COST;
}

static ps_status make_sums(const double *costs, int64_t n, double **out)
{
    ps_status status = ps_alloc(n + 1, sizeof **out, (void **)out);
    if (status != PS_OK)
        return status;
    (*out)[0] = 0.0;
    for (int64_t i = 0; i < n; i++)
        (*out)[i + 1] = (*out)[i] + costs[i];
    return PS_OK;
}

ps_status ps_balance(const double *costs, int64_t n, int64_t k, double first, double last,
                     const double *cut_bytes, int64_t *cuts, double *largest)
{
    double *sum = NULL;
    ps_status status = check_costs(costs, n, k, first, last);
    if (status == PS_OK)
        status = make_sums(costs, n, &sum);
    if (status != PS_OK)
        goto done;
    chain c = {sum, n, first, last};
    *largest = smallest_largest(&c, k);
    if (cut_bytes != NULL)
        status = cheapest_cuts(&c, k, *largest, cut_bytes, cuts);
    else
        leftmost_cuts(&c, k, *largest, cuts);
done:
    free(sum);
    return status;
}

/* ---- v chunks a rank ------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* No rank's load can be below any of: the mean; a layer; the cheapest
 * ceil(n / k) layers, as some rank holds that many. `sorted` is scratch. */
static double chunk_bound(const chain *c, int64_t k, double *sorted)
{
    double bound = (c->sum[c->n] + c->first + c->last) / (double)k;
    for (int64_t i = 0; i < c->n; i++) {
        sorted[i] = c->sum[i + 1] - c->sum[i];
        bound = fmax(bound, sorted[i]);
    }
    bound = fmax(bound, fmax(sorted[0] + c->first, sorted[c->n - 1] + c->last));
    qsort(sorted, (size_t)c->n, sizeof *sorted, compare_doubles);
    double cheapest = 0.0;
    for (int64_t i = 0; i < (c->n + k - 1) / k; i++)
        cheapest += sorted[i];
    return fmax(bound, cheapest);
}

/* Move each cut to where its two ranks are most alike, until no cut moves. A move
 * must make the larger of the two smaller, so the loads, sorted, fall
 * lexicographically and the walk ends. */
static void even_out(const chain *c, int64_t k, int64_t parts, double *load, int64_t *cuts)
{
    int moved = 1;
    while (moved) {
        moved = 0;
        for (int64_t cut = 1; cut < parts; cut++) {
            double *left = &load[(cut - 1) % k];
            double *right = &load[cut % k];
            double fixed_left = *left - part(c, cuts[cut - 1], cuts[cut]);
            double fixed_right = *right - part(c, cuts[cut], cuts[cut + 1]);
            double best = fmax(*left, *right);
            double margin = best * 1e-12; /* rounding must not look like progress */
            int64_t to = cuts[cut];
            for (int64_t x = cuts[cut - 1] + 1; x < cuts[cut + 1]; x++) {
                double worse = fmax(fixed_left + part(c, cuts[cut - 1], x),
                                    fixed_right + part(c, x, cuts[cut + 1]));
                if (worse < best - margin) {
                    best = worse;
                    to = x;
                }
            }
            if (to != cuts[cut]) {
                *left = fixed_left + part(c, cuts[cut - 1], to);
                *right = fixed_right + part(c, to, cuts[cut + 1]);
                cuts[cut] = to;
                moved = 1;
            }
        }
    }
}

/* Scratch of the exact search for two chunks a rank, k + 1 rows of n + 1. */
typedef struct pairs {
    int32_t *reach; /* [r][a]: with ranks 0 .. r-1 done and the first chunks ended at a,
                       the furthest end of the second chunks; -1: not to be had */
    int32_t *from;  /* [r][a]: the a before */
} pairs;

/* Ranks r's two chunks from a and b on: extend to every end of the first, with the
 * furthest end of the second. As the first grows, the second can only shrink. */
static void extend_pair(const chain *c, int64_t k, int64_t middle, int64_t r, int64_t a,
                        double limit, const pairs *p)
{
    int64_t row = c->n + 1;
    int64_t b = p->reach[r * row + a];
    int last = r == k - 1;
    int64_t most_b = last ? c->n : c->n - (k - 1 - r);
    int64_t end_b = most_b;
    int64_t least_a = last ? middle : a + 1;
    int64_t most_a = middle - (k - 1 - r);
    for (int64_t end_a = least_a; end_a <= most_a; end_a++) {
        double own = part(c, a, end_a);
        while (end_b > b && own + part(c, b, end_b) > limit)
            end_b--;
        if (end_b == b || (last && end_b < c->n))
            return;
        int32_t *reach = &p->reach[(r + 1) * row + end_a];
        if (end_b > *reach) {
            *reach = (int32_t)end_b;
            p->from[(r + 1) * row + end_a] = (int32_t)a;
        }
    }
}

/* Whether two chunks a rank fit in `limit`; then the cuts. The second chunks start
 * where the first ones end: each such middle is tried. Further is always better, as
 * what is left can only become cheaper, and each rank is left a layer. */
static int pairs_fit(const chain *c, int64_t k, double limit, const pairs *p, int64_t *cuts)
{
    int64_t row = c->n + 1;
    for (int64_t middle = k; middle <= c->n - k; middle++) {
        for (int64_t i = 0; i < (k + 1) * row; i++)
            p->reach[i] = -1;
        p->reach[0] = (int32_t)middle;
        for (int64_t r = 0; r < k; r++)
            for (int64_t a = r; a <= middle - (k - r); a++)
                if (p->reach[r * row + a] >= 0)
                    extend_pair(c, k, middle, r, a, limit, p);
        if (p->reach[k * row + middle] != c->n)
            continue;
        int64_t a = middle;
        for (int64_t r = k; r >= 0; r--) {
            cuts[r] = a;
            cuts[k + r] = p->reach[r * row + a];
            a = r > 0 ? p->from[r * row + a] : a;
        }
        return 1;
    }
    return 0;
}

static double largest_load(const chain *c, int64_t k, int64_t parts, const int64_t *cuts,
                           double *load)
{
    double largest = 0.0;
    memset(load, 0, (size_t)k * sizeof *load);
    for (int64_t s = 0; s < parts; s++)
        load[s % k] += part(c, cuts[s], cuts[s + 1]);
    for (int64_t r = 0; r < k; r++)
        largest = fmax(largest, load[r]);
    return largest;
}

/* Better the local search's cuts to the optimum. Often they are it, and one probe
 * just below says so. */
static ps_status best_pairs(const chain *c, int64_t k, int64_t *cuts, double *load,
                            double *largest, double *bound)
{
    pairs p = {NULL, NULL};
    int64_t *found = NULL;
    int64_t cells = (k + 1) * (c->n + 1);
    ps_status status = ps_alloc(cells, sizeof *p.reach, (void **)&p.reach);
    if (status == PS_OK)
        status = ps_alloc(cells, sizeof *p.from, (void **)&p.from);
    if (status == PS_OK)
        status = ps_alloc(2 * k + 1, sizeof *found, (void **)&found);
    if (status != PS_OK)
        goto done;
    double probe = nextafter(*largest, 0.0);
    while (*bound < *largest) {
        if (pairs_fit(c, k, probe, &p, found)) {
            memcpy(cuts, found, (size_t)(2 * k + 1) * sizeof *cuts);
            *largest = largest_load(c, k, 2 * k, cuts, load);
        } else {
            *bound = nextafter(probe, INFINITY);
        }
        probe = between(*bound, *largest);
        if (probe < *bound || probe >= *largest)
            probe = *bound;
    }
done:
    free(found);
    free(p.from);
    free(p.reach);
    return status;
}

ps_status ps_balance_chunks(const double *costs, int64_t n, int64_t k, int64_t v, double first,
                            double last, int64_t *cuts, double *largest, double *bound)
{
    double *sum = NULL, *load = NULL, *sorted = NULL;
    int64_t parts = 0;
    ps_status status = k < 1 || v < 1 ? PS_ERR_TOO_SMALL : ps_mul(k, v, &parts);
    if (status == PS_OK) /* checks all arguments */
        status = ps_balance(costs, n, parts, first, last, NULL, cuts, largest);
    if (status == PS_OK)
        status = make_sums(costs, n, &sum);
    if (status == PS_OK)
        status = ps_alloc_zeroed(k, sizeof *load, (void **)&load);
    if (status == PS_OK)
        status = ps_alloc(n, sizeof *sorted, (void **)&sorted);
    if (status != PS_OK)
        goto done;
    chain c = {sum, n, first, last};
    for (int64_t s = 0; s < parts; s++)
        load[s % k] += part(&c, cuts[s], cuts[s + 1]);
    if (k > 1)
        even_out(&c, k, parts, load, cuts);
    *largest = largest_load(&c, k, parts, cuts, load); /* no rounding of the walk stays */
    *bound = k > 1 ? chunk_bound(&c, k, sorted) : *largest;
    if (k > 1 && v == 2 && n <= PS_EXACT_PAIRS)
        status = best_pairs(&c, k, cuts, load, largest, bound);
done:
    free(sorted);
    free(load);
    free(sum);
    return status;
}
