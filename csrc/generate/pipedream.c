/* PipeDream: 1F1B that never drains, weights updated after every backward.
 *
 * The order of the ops of m mini-batches is that of 1F1B; what differs is when the
 * weights change, and so how many versions of them a rank stashes. A stage that is
 * replicated gives each replica every n-th mini-batch: ps_order_1f1b's step.
 */
#include "families.h"
#include "order.h"

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    for (int32_t rank = 0; rank < config->p; rank++)
        ps_order_1f1b(ops + offsets[rank], rank, 0, 1, config->m, config->p - 1 - rank);
    return PS_OK;
}

const ps_family ps_family_pipedream = {
    .name = "pipedream",
    .title = "PipeDream (asynchronous 1F1B)",
    .summary = "1F1B over a stream of m mini-batches without a flush between them: the weights "
               "change after every backward, and rank r stashes min(p-r, m) versions of them. "
               "The first fill and the last drain are the only bubble.",
    .constraints = "m counts mini-batches, each with its own weight update",
    .placement = "loop",
    .source = "Narayanan et al., PipeDream, SOSP 2019, arXiv 1806.03377",
    .length = ps_length_f_b,
    .fill = fill,
};
