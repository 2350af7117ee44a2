/* V-Min: about a third of 1F1B's activations. */
#include "families.h"
#include "v_block.h"
#include "v_shape.h"

static void slots(int32_t p, int32_t rank, int32_t slot[4])
{
    const int32_t wait = p % 3 == 0 ? 2 : 0; /* keeps the four apart modulo 6 */
    slot[0] = rank;
    slot[1] = 2 * p - rank - 1;
    slot[2] = 2 * p + wait + rank;
    slot[3] = 4 * p + wait - rank - 1;
}

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    return ps_v_block(config, slots, offsets, ops);
}

const ps_family ps_family_v_min = {
    .name = "v-min",
    .title = "V-Min",
    .summary =
        "Two chunks a rank in a V, the backward split; a repeated building block that holds at "
        "most 2*floor((p+4)/3) chunks, about a third of 1F1B's activations.",
    .constraints = "",
    .placement = "v",
    .source = "Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362",
    .num_stages = ps_v_num_stages,
    .length = ps_v_block_length,
    .fill = fill,
};
