/* Balanced cuts and plans in C: small answers, what is refused, and an allocator
 * that fails anywhere. */
#include "ctest.h"

#include <math.h>

#include "ps_generate.h"
#include "ps_partition.h"

static void test_balance(void)
{
    const double costs[] = {4, 4, 4, 7, 7};
    int64_t cuts[5];
    double largest = 0.0;
    CHECK_INT(ps_balance(costs, 5, 4, 0.0, 0.0, NULL, cuts, &largest), PS_OK);
    CHECK(largest == 8.0);
    const int64_t expected[] = {0, 1, 3, 4, 5};
    CHECK(memcmp(cuts, expected, sizeof expected) == 0);
    /* The second pair costs fewer bytes. */
    const double bytes[] = {9, 1, 9, 9, 0};
    CHECK_INT(ps_balance(costs, 5, 4, 0.0, 0.0, bytes, cuts, &largest), PS_OK);
    CHECK_INT(cuts[1], 2);
}

static void test_balance_refuses(void)
{
    const double bad[] = {1.0, -1.0, NAN, INFINITY};
    int64_t cuts[8];
    double largest;
    CHECK_INT(ps_balance(bad, 1, 0, 0, 0, NULL, cuts, &largest), PS_ERR_TOO_SMALL);
    CHECK_INT(ps_balance(bad, 1, 2, 0, 0, NULL, cuts, &largest), PS_ERR_TOO_LARGE);
    for (int64_t n = 2; n <= 4; n++)
        CHECK_INT(ps_balance(bad + n - 1, 1, 1, 0, 0, NULL, cuts, &largest), PS_ERR_COST);
    CHECK_INT(ps_balance(bad, 1, 1, -1.0, 0, NULL, cuts, &largest), PS_ERR_COST);
    const double huge[] = {1e308, 1e308};
    CHECK_INT(ps_balance(huge, 2, 1, 0, 0, NULL, cuts, &largest), PS_ERR_COST);
    double bound;
    CHECK_INT(ps_balance_chunks(bad, 1, INT64_MAX, 2, 0, 0, cuts, &largest, &bound),
              PS_ERR_OVERFLOW);
}

static const double ones[] = {1, 1, 1, 1};
static const int32_t diamond[] = {0, 1, 0, 2, 1, 3, 2, 3};
static const int32_t two_by_two[] = {2, 2};
static const double speeds[] = {8.0, 4.0};

static ps_layers diamond_layers(void)
{
    return (ps_layers){4, 4, diamond, ones, ones, ones};
}

static ps_cluster cluster(void)
{
    return (ps_cluster){2, two_by_two, speeds};
}

static ps_status plan(double memory, const ps_poll *poll, ps_cut *cut)
{
    ps_layers layers = diamond_layers();
    ps_cluster workers = cluster();
    ps_plan_options options = {1, 0, 0, 0, 100, memory, 1.0};
    return ps_plan(&layers, &workers, &options, poll, cut);
}

static ps_status compat(int32_t limit, ps_cut *cut)
{
    ps_layers layers = diamond_layers();
    ps_cluster workers = cluster();
    ps_compat options = {0, 0, INFINITY, 1.0};
    ps_poll never = {NULL, NULL};
    return ps_compat_partition(&layers, &workers, &options, limit, &never, cut);
}

static void test_plan(void)
{
    int32_t stage_of_layer[4], stage_of_rank[4];
    ps_cut cut = {.stage_of_layer = stage_of_layer, .stage_of_rank = stage_of_rank};
    ps_poll never = {NULL, NULL};
    CHECK_INT(plan(INFINITY, &never, &cut), PS_OK);
    CHECK(cut.objective >= 1.0 && cut.objective <= 4.0);
    CHECK(cut.exact);
    CHECK_INT(cut.num_states, 6); /* a diamond has six prefixes */
    CHECK_INT(plan(1.0, &never, &cut), PS_ERR_INFEASIBLE);
    CHECK_INT(compat(100, &cut), PS_OK);
    CHECK_INT(cut.num_states, 5); /* the published program has no empty one */
    CHECK_INT(compat(4, &cut), PS_ERR_TOO_LARGE);
}

static int stop(void *context)
{
    ++*(int *)context;
    return 1;
}

static void test_poll_stops(void)
{
    enum { N = 400 };
    static double costs[N];
    static int32_t edges[2 * (N - 1)], stage_of_layer[N], stage_of_rank[16];
    for (int32_t i = 0; i < N; i++)
        costs[i] = 1.0;
    for (int32_t i = 0; i + 1 < N; i++) {
        edges[2 * i] = i;
        edges[2 * i + 1] = i + 1;
    }
    ps_layers layers = {N, N - 1, edges, costs, costs, costs};
    const int32_t counts[] = {4, 4};
    ps_cluster workers = {2, counts, speeds};
    ps_plan_options options = {1, 0, 0, 0, 4096, INFINITY, 1.0};
    ps_cut cut = {.stage_of_layer = stage_of_layer, .stage_of_rank = stage_of_rank};
    int asked = 0;
    ps_poll poll = {stop, &asked};
    CHECK_INT(ps_plan(&layers, &workers, &options, &poll, &cut), PS_ERR_INTERRUPTED);
    CHECK_INT(asked, 1);
}

static void test_plan_refuses(void)
{
    int32_t stage_of_layer[4], stage_of_rank[4];
    ps_cut cut = {.stage_of_layer = stage_of_layer, .stage_of_rank = stage_of_rank};
    ps_poll never = {NULL, NULL};
    ps_plan_options options = {1, 0, 0, 0, 100, INFINITY, 1.0};
    ps_layers layers = diamond_layers();
    ps_cluster workers = cluster();
    const int32_t backward[] = {1, 0};
    const int32_t outside[] = {0, 4};
    layers.num_edges = 1;
    layers.edges = backward;
    CHECK_INT(ps_plan(&layers, &workers, &options, &never, &cut), PS_ERR_OP_RANGE);
    layers.edges = outside;
    CHECK_INT(ps_plan(&layers, &workers, &options, &never, &cut), PS_ERR_OP_RANGE);
    layers = diamond_layers();
    layers.n = 0;
    CHECK_INT(ps_plan(&layers, &workers, &options, &never, &cut), PS_ERR_TOO_SMALL);
    layers = diamond_layers();
    workers.levels = 0;
    CHECK_INT(ps_plan(&layers, &workers, &options, &never, &cut), PS_ERR_TOO_SMALL);
    workers.levels = PS_MAX_LEVELS + 1;
    CHECK_INT(ps_plan(&layers, &workers, &options, &never, &cut), PS_ERR_TOO_LARGE);
    const double still[] = {8.0, 0.0};
    workers = cluster();
    workers.bandwidth = still;
    CHECK_INT(ps_plan(&layers, &workers, &options, &never, &cut), PS_ERR_COST);
    const int32_t many[] = {INT32_MAX, INT32_MAX};
    workers = cluster();
    workers.counts = many;
    CHECK_INT(ps_plan(&layers, &workers, &options, &never, &cut), PS_ERR_OVERFLOW);
}

static void test_failing_allocator(void)
{
    const double costs[] = {4, 4, 4, 7, 7};
    int64_t cuts[5];
    double largest, bound;
    CHECK_EVERY_ALLOC(ps_balance(costs, 5, 2, 0.0, 0.0, costs, cuts, &largest));
    CHECK_EVERY_ALLOC(ps_balance_chunks(costs, 5, 2, 2, 0.0, 0.0, cuts, &largest, &bound));
    int32_t stage_of_layer[4], stage_of_rank[4];
    ps_cut cut = {.stage_of_layer = stage_of_layer, .stage_of_rank = stage_of_rank};
    ps_poll never = {NULL, NULL};
    CHECK_EVERY_ALLOC(plan(INFINITY, &never, &cut));
    CHECK_EVERY_ALLOC(compat(100, &cut));
}

static void test_replicated(void)
{
    const int32_t replicas[] = {2, 1};
    const int32_t in_flight[] = {2, 1};
    int64_t offsets[4];
    ps_op ops[12];
    CHECK_INT(ps_replicated_offsets(replicas, 2, 3, offsets), PS_OK);
    CHECK_INT(offsets[3], 12);
    CHECK_INT(ps_replicated_fill(replicas, in_flight, 2, 3, offsets, ops), PS_OK);
    CHECK_INT(ops[1].microbatch, 2);
    CHECK_INT(ops[offsets[1]].microbatch, 1);
    CHECK_INT(ops[offsets[2]].stage, 1);
    CHECK_INT(ps_replicated_offsets(replicas, 2, 0, offsets), PS_ERR_TOO_SMALL);
    CHECK_INT(ps_replicated_offsets(replicas, 0, 1, offsets), PS_ERR_TOO_SMALL);
}

int main(void)
{
    RUN(test_balance);
    RUN(test_balance_refuses);
    RUN(test_plan);
    RUN(test_poll_stops);
    RUN(test_plan_refuses);
    RUN(test_failing_allocator);
    RUN(test_replicated);
    return ctest_done();
}
