/* Hanayo: the stages run up and down the ranks in waves. */
#include <stdlib.h>

#include "families.h"
#include "list_schedule.h"

enum { WAVES };

static ps_status num_stages(const ps_config *config, int64_t *out)
{
    return ps_mul(2 * (int64_t)config->option[WAVES], config->p, out);
}

static ps_status length(const ps_config *config, int32_t rank, int64_t *out)
{
    (void)rank;
    return ps_mul(4 * (int64_t)config->option[WAVES], config->m, out);
}

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    const int32_t p = config->p;
    const int32_t stages = 2 * config->option[WAVES] * p;
    void *room;
    ps_status status = ps_alloc(stages, sizeof(int32_t), &room);
    if (status != PS_OK)
        return status;
    int32_t *rank = room;
    for (int32_t s = 0; s < stages; s++)
        rank[s] = s / p % 2 == 0 ? s % p : p - 1 - s % p;
    const ps_pipe pipe = {rank, 0, config->m};
    const ps_list_plan plan = {.p = p, .num_stages = stages, .num_pipes = 1, .pipes = &pipe};
    status = ps_list_schedule(&plan, offsets, ops);
    free(room);
    return status;
}

static const ps_option options[] = {
    [WAVES] = {"waves", 1, 1, NULL, "waves: each rank holds two stages a wave"},
};

const ps_family ps_family_hanayo = {
    .name = "hanayo",
    .title = "Hanayo",
    .summary =
        "The stages snake up and down the ranks, 2 * waves a rank. The order is list "
        "scheduling "
        "in unit time, not the paper's own; its idle share at m=p and B=2f is "
        "(2p-2)/(3p*waves+2p-2), where the paper's closed form says (2p-2)/(3p*waves+p-1).",
    .constraints = "",
    .placement = "snake",
    .source = "Liu et al., Hanayo, arXiv 2308.15762",
    .options = options,
    .num_options = 1,
    .num_stages = num_stages,
    .length = length,
    .fill = fill,
};
