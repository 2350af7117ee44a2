/* ZB-H1: the 1F1B order with the backward split, memory of 1F1B. */
#include "families.h"
#include "order.h"

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    for (int32_t rank = 0; rank < config->p; rank++)
        ps_order_interleaved_split(ops + offsets[rank], rank, config, 1, config->m,
                                   config->p - 1 - rank, rank);
    return PS_OK;
}

const ps_family ps_family_zb_h1 = {
    .name = "zb-h1",
    .title = "ZB-H1",
    .summary =
        "The 1F1B order with B split into I and W; rank r lets its Ws lag r behind its Is, "
        "so that they fill what would be a bubble. Every rank holds p micro-batches.",
    .constraints = "",
    .placement = "loop",
    .source = "Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241",
    .length = ps_length_f_i_w,
    .fill = fill,
};
