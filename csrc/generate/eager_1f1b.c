/* Eager 1F1B: twice the warm-up of 1F1B, so that transfers hide behind compute. */
#include "families.h"
#include "order.h"

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    for (int32_t rank = 0; rank < config->p; rank++)
        ps_order_1f1b(ops + offsets[rank], rank, 0, 1, config->m,
                      2 * ((int64_t)config->p - 1 - rank));
    return PS_OK;
}

const ps_family ps_family_eager_1f1b = {
    .name = "eager-1f1b",
    .title = "eager 1F1B",
    .summary = "1F1B with 2(p-1-r) warm-up forwards on rank r: a forward is ready a transfer "
               "earlier than it is needed, so transfers hide behind compute. Holds up to 2p-1 "
               "micro-batches.",
    .constraints = "",
    .placement = "loop",
    .source = "Zhuang et al., On Optimizing the Communication of Model Parallelism, "
              "arXiv 2211.05322",
    .length = ps_length_f_b,
    .fill = fill,
};
