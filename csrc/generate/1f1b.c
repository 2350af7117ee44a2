/* 1F1B (PipeDream-flush): one forward, one backward, after a short warm-up. */
#include "families.h"
#include "order.h"

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    for (int32_t rank = 0; rank < config->p; rank++)
        ps_order_1f1b(ops + offsets[rank], rank, 0, 1, config->m, config->p - 1 - rank);
    return PS_OK;
}

const ps_family ps_family_1f1b = {
    .name = "1f1b",
    .title = "1F1B (PipeDream-flush)",
    .summary = "Rank r warms up with p-1-r forwards, then alternates one forward with one "
               "backward. GPipe's bubble with at most p micro-batches held.",
    .constraints = "",
    .placement = "loop",
    .source =
        "Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, arXiv 2006.09503",
    .length = ps_length_f_b,
    .fill = fill,
};
