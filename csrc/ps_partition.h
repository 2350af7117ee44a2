/* Layers to stages: balanced cuts of a chain, and PipeDream's partition of a
 * graph of layers into replicated stages.
 *
 * Everything is given as plain arrays that the caller owns; nothing is kept. The
 * core writes its answers into arrays of the sizes named below.
 */
#ifndef PS_PARTITION_H
#define PS_PARTITION_H

#include "ps_base.h"

/* ---- Balanced cuts (partition/balance.c) ------------------------------------------------ */

/* Cut n layers into k contiguous parts, none empty, so that the largest part is
 * as small as possible: the exact optimum of
 *     part(i, j) = sum[j] - sum[i]  (+ first where i = 0)  (+ last where j = n)
 * with sum the running sum of the costs. Among the optima: fewest bytes over the
 * cuts where cut_bytes is given, then the lexicographically smallest cuts.
 *
 *   costs      n values, finite, >= 0;  first, last likewise
 *   cut_bytes  NULL, or n values: bytes that cross a cut behind layer i
 *   cuts       out, k + 1 values from 0 to n
 *   largest    out
 *
 * O(k log n) a probe, some 50 probes; O(k n) more with cut_bytes.
 * PS_ERR_TOO_SMALL: k < 1; PS_ERR_TOO_LARGE: k > n; PS_ERR_COST; PS_ERR_MEMORY. */
PS_MUST_CHECK ps_status ps_balance(const double *costs, int64_t n, int64_t k, double first,
                                   double last, const double *cut_bytes, int64_t *cuts,
                                   double *largest);

/* The same with v chunks a rank: k * v parts, part s on rank s mod k, and the
 * load of a rank is the sum of its parts. Exact for two chunks and few layers; else a
 * local search from ps_balance's cuts. *bound is a lower bound, and the answer is
 * proven where it is not above. cuts has k * v + 1 entries.
 * O(n^3) a probe for two chunks, some 50 probes at most and mostly one. */
enum { PS_EXACT_PAIRS = 128 };

PS_MUST_CHECK ps_status ps_balance_chunks(const double *costs, int64_t n, int64_t k, int64_t v,
                                          double first, double last, int64_t *cuts,
                                          double *largest, double *bound);

/* ---- A graph of layers ----------------------------------------------------------- */

/* Borrowed. Edges lead from a smaller to a larger layer. Costs are finite, >= 0. */
typedef struct ps_layers {
    int32_t n;                /* layers, >= 1 */
    int64_t num_edges;        /* pairs */
    const int32_t *edges;     /* source, target, source, target, ... */
    const double *compute;    /* n: seconds of forward and backward of a mini-batch */
    const double *activation; /* n: bytes of a mini-batch's output */
    const double *parameters; /* n: bytes of weights */
} ps_layers;

/* PS_ERR_TOO_SMALL: no layer; PS_ERR_OP_RANGE: an edge out of range or backward;
 * PS_ERR_COST. */
PS_MUST_CHECK ps_status ps_layers_check(const ps_layers *layers);

/* Workers in levels: counts[0] of them share the fastest links (a server),
 * counts[1] of those the next, and so on. */
typedef struct ps_cluster {
    int32_t levels;          /* >= 1 */
    const int32_t *counts;   /* levels, each >= 1 */
    const double *bandwidth; /* levels, bytes a second, > 0 */
} ps_cluster;

enum { PS_MAX_LEVELS = 8 };

/* Asked now and then during long work; non-zero stops it (PS_ERR_INTERRUPTED). */
typedef struct ps_poll {
    int (*ask)(void *context); /* NULL: never asked */
    void *context;
} ps_poll;

/* The answer of both partitioners; the arrays are the caller's. */
typedef struct ps_cut {
    int32_t *stage_of_layer; /* n; -1: in no stage (compat mode: not before the last state) */
    int32_t *stage_of_rank;  /* one for each worker; -1: the worker is idle */
    int32_t num_stages;
    int32_t num_states; /* prefixes that were tried */
    int32_t exact;      /* all prefixes were tried */
    double objective;   /* seconds a mini-batch (bytes where memory is minimised) */
} ps_cut;

/* ---- PipeDream's published optimizer, fault by fault (partition/compat.c) -----------------
 */

typedef struct ps_compat {
    int straight;      /* no replication */
    int fewer;         /* machines may be left over */
    double memory;     /* bytes a machine; INFINITY: not asked */
    double compressed; /* activations are this many times smaller; 0: no transfer counted */
} ps_compat;

/* The program's objective and a partition that has it. PS_ERR_INFEASIBLE: it finds
 * none (and stops with a TypeError); PS_ERR_RULE: it compares with a missing value;
 * PS_ERR_TOO_LARGE: more than `limit` states. Per level: O(states^2 machines^2), for
 * all but the last level times the states. */
PS_MUST_CHECK ps_status ps_compat_partition(const ps_layers *layers, const ps_cluster *cluster,
                                            const ps_compat *options, int32_t limit,
                                            const ps_poll *poll, ps_cut *cut);

/* ---- The default model (partition/plan.c) ---------------------------------------------------
 */

typedef struct ps_plan_options {
    int overlap;          /* a worker computes while its link is busy */
    int minimise_memory;  /* the objective is the largest memory of a stage instead */
    int32_t max_replicas; /* of a stage; 0: no limit */
    int32_t num_stages;   /* exactly so many; 0: as is best */
    int32_t limit;        /* of states; beyond, the layers are put in line */
    double memory;        /* bytes a worker; INFINITY: no limit */
    double optimizer;     /* bytes of gradients and optimizer state a byte of weights */
} ps_plan_options;

/* The most cells of the search's table, a double each: states, times levels, times
 * workers, times workers again with a memory limit and several levels, times stages
 * where they are given. */
enum { PS_MAX_BORDERS = 1 << 27 };

/* The partition into replicated stages with the smallest time a mini-batch; among
 * those the fewest stages, then the fewest ranks.
 *
 * Stages stand in the order of the ranks, each on a range without gaps; ranks
 * between two ranges may stay idle. A link between two ranks is as fast as the
 * slowest level between them (never faster than a level inside). With C, W, A the
 * sums of a stage's compute, weights and outputs, r its replicas, R the busy ranks
 * from it on, in and out the bytes across its borders, and B the slowest link
 * within the stage, or within it and its neighbour:
 *     compute = C / r            reduce = 2 (r-1)/r W / B / r
 *     receive = 2 in / B / r     send   = 2 out / B / r
 *     time    = max(compute, reduce + receive + send), or their sum without overlap
 *     memory  = ceil(R / r) (W + A + in) + optimizer W
 *
 * PS_ERR_INFEASIBLE: nothing fits (memory, or num_stages). PS_ERR_TOO_LARGE: a table of
 * more than PS_MAX_BORDERS. O(states^2 N^2 levels^2)
 * for N workers, times N with a memory limit and several levels. */
PS_MUST_CHECK ps_status ps_plan(const ps_layers *layers, const ps_cluster *cluster,
                                const ps_plan_options *options, const ps_poll *poll,
                                ps_cut *cut);

#endif
