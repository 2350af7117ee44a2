/* Naive: one micro-batch at a time through the whole model. */
#include "families.h"
#include "order.h"

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    for (int32_t rank = 0; rank < config->p; rank++) {
        ps_op *out = ops + offsets[rank];
        for (int32_t j = 0; j < config->m; j++) {
            out = ps_put(out, rank, j, PS_F);
            out = ps_put(out, rank, j, PS_B);
        }
    }
    return PS_OK;
}

const ps_family ps_family_naive = {
    .name = "naive",
    .title = "naive model parallelism",
    .summary =
        "Each micro-batch runs forward and backward through all ranks before the next one "
        "starts. One rank works at a time.",
    .constraints = "",
    .placement = "loop",
    .source = "Huang et al., GPipe, arXiv 1811.06965, figure 2b",
    .length = ps_length_f_b,
    .fill = fill,
};
