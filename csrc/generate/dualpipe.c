/* DualPipe: two pipelines in opposite directions over the same ranks. */
#include "dualpipe_order.h"
#include "families.h"

/* The even number nearest to p that has m micro-batches to pair; -1: none has. */
static int64_t nearest_p(int64_t p, int64_t m)
{
    if (m % 2 != 0 || m < 4)
        return -1;
    const int64_t most = m / 4 * 2;
    return p + 1 <= most ? p + 1 : most;
}

static ps_status check(ps_config *config, ps_rule_fault *fault)
{
    const int64_t p = config->p;
    const int64_t m = config->m;
    if (p % 2 != 0) {
        *fault = (ps_rule_fault){"p", p, "the ranks pair up, so p must be even",
                                 m >= 2 * p ? "take dualpipe-v, which takes any p"
                                            : "take zb-v, which takes any p and m",
                                 nearest_p(p, m)};
        return PS_ERR_RULE;
    }
    if (m < 2 * p) {
        *fault = (ps_rule_fault){"m", m, "its steps need m >= 2p",
                                 "take chimera, which takes any m", 2 * p};
        return PS_ERR_RULE;
    }
    if (m % 2 != 0) {
        *fault =
            (ps_rule_fault){"m", m, "half of the micro-batches go each way, so m must be even",
                            "take dualpipe-v, which takes any m >= 2p", m - 1};
        return PS_ERR_RULE;
    }
    return PS_OK;
}

/* Ranks from the nearer end. */
static int32_t depth_of(int32_t p, int32_t rank)
{
    return rank < p / 2 ? rank : p - 1 - rank;
}

static ps_status length(const ps_config *config, int32_t rank, int64_t *out)
{
    *out = ps_dualpipe_length(config->p / 2, depth_of(config->p, rank), config->m / 2);
    return PS_OK;
}

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    const int32_t p = config->p;
    const int32_t half_m = config->m / 2;
    for (int32_t r = 0; r < p; r++) {
        /* Lane 0 enters the pipeline at the end nearer to the rank: downwards (the first
         * half of the micro-batches) for the ranks of the first half. */
        const int32_t depth = depth_of(p, r);
        const int32_t down = r < p / 2 ? 0 : half_m;
        ps_dualpipe_rank rank = {.half = p / 2,
                                 .depth = depth,
                                 .count = half_m,
                                 .stage = {depth, p - 1 - depth},
                                 .first = {down, half_m - down}};
        ps_dualpipe_order(&rank, ops + offsets[r]);
    }
    return PS_OK;
}

const ps_family ps_family_dualpipe = {
    .name = "dualpipe",
    .title = "DualPipe",
    .summary =
        "Two pipelines in opposite directions: micro-batches 0..m/2-1 enter at rank 0, the "
        "others at rank p-1. A forward of one and a backward of the other run as one "
        "overlapped pair. Every rank holds two stages; all weights exist twice.",
    .constraints = "p even, m even, m >= 2p",
    .placement = "bidirectional",
    .source = "DeepSeek-V3 Technical Report, arXiv 2412.19437; github.com/deepseek-ai/DualPipe",
    .check = check,
    .length = length,
    .fill = fill,
};
