/* Forward only: inference, and the exercise's table. */
#include "families.h"
#include "order.h"

static ps_status length(const ps_config *config, int32_t rank, int64_t *out)
{
    (void)rank;
    *out = config->m;
    return PS_OK;
}

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    for (int32_t rank = 0; rank < config->p; rank++)
        ps_order_run(ops + offsets[rank], rank, config->m, PS_F);
    return PS_OK;
}

const ps_family ps_family_forward = {
    .name = "forward",
    .title = "forward only",
    .summary =
        "Forwards in order and nothing else: inference, evaluation. Nothing is held for a "
        "backward.",
    .constraints = "",
    .placement = "loop",
    .source = "the pipeline of any textbook",
    .length = length,
    .fill = fill,
};
