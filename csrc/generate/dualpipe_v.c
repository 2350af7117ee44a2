/* DualPipeV: DualPipe cut in half; the two directions are the two arms of a V. */
#include "dualpipe_order.h"
#include "families.h"
#include "v_shape.h"

static ps_status check(ps_config *config, ps_rule_fault *fault)
{
    const int64_t stages = 2 * (int64_t)config->p;
    if (config->m >= stages)
        return PS_OK;
    *fault = (ps_rule_fault){"m", config->m, "its steps need m >= 2p",
                             "take zb-v, which takes any m", stages};
    return PS_ERR_RULE;
}

static ps_status length(const ps_config *config, int32_t rank, int64_t *out)
{
    *out = ps_dualpipe_length(config->p, rank, config->m);
    return PS_OK;
}

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    for (int32_t r = 0; r < config->p; r++) {
        ps_dualpipe_rank rank = {
            .half = config->p,
            .depth = r,
            .count = config->m,
            .stage = {ps_v_stage(config->p, r, 0), ps_v_stage(config->p, r, 1)},
            .first = {0, 0}};
        ps_dualpipe_order(&rank, ops + offsets[r]);
    }
    return PS_OK;
}

const ps_family ps_family_dualpipe_v = {
    .name = "dualpipe-v",
    .title = "DualPipeV",
    .summary = "DualPipe on half of the ranks: two chunks a rank in a V take the place of the "
               "two directions, so the weights exist once.",
    .constraints = "m >= 2p",
    .placement = "v",
    .source = "Qi et al., sail-sg's cut-in-half; github.com/deepseek-ai/DualPipe, "
              "torch's ScheduleDualPipeV",
    .check = check,
    .num_stages = ps_v_num_stages,
    .length = length,
    .fill = fill,
};
