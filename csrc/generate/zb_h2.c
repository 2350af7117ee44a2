/* ZB-H2: almost no bubble for twice the memory of 1F1B. */
#include "families.h"
#include "order.h"

static ps_status check(ps_config *config, ps_rule_fault *fault)
{
    const int64_t least = 2 * (int64_t)config->p - 1;
    if (config->m >= least)
        return PS_OK;
    *fault = (ps_rule_fault){"m", config->m, "the rule needs m >= 2p - 1", "take zb-h1", least};
    return PS_ERR_RULE;
}

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    const int32_t m = config->m;
    for (int32_t rank = 0; rank < config->p; rank++) {
        /* At most m, which is an int32: check. */
        int32_t forward = (int32_t)(2 * ((int64_t)config->p - rank) - 1);
        const int64_t behind = 2 * (int64_t)rank;
        int32_t weight = 0;
        ps_op *out = ps_order_run(ops + offsets[rank], rank, forward, PS_F);
        for (int32_t j = 0; j < m; j++) {
            out = ps_put(out, rank, j, PS_I);
            if (j >= behind)
                out = ps_put(out, rank, weight++, PS_W);
            if (forward < m)
                out = ps_put(out, rank, forward++, PS_F);
        }
        while (weight < m)
            out = ps_put(out, rank, weight++, PS_W);
    }
    return PS_OK;
}

const ps_family ps_family_zb_h2 = {
    .name = "zb-h2",
    .title = "ZB-H2",
    .summary =
        "2(p-r)-1 warm-up forwards on rank r and Ws that lag 2r behind the Is: each rank "
        "works without a gap where f = b = w. Every rank holds 2p-1 micro-batches.",
    .constraints = "m >= 2p - 1",
    .placement = "loop",
    .source = "Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241",
    .check = check,
    .length = ps_length_f_i_w,
    .fill = fill,
};
