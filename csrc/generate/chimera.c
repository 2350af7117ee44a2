/* Chimera: two 1F1B-like pipelines in opposite directions fill each other's bubbles. */
#include <stdlib.h>

#include "families.h"
#include "list_schedule.h"
#include "order.h"

static ps_status check(ps_config *config, ps_rule_fault *fault)
{
    const int64_t p = config->p;
    if (p % 2 == 0)
        return PS_OK;
    *fault = (ps_rule_fault){"p", p, "the ranks pair up, so p must be even",
                             "take zb-v, which takes any p", p + 1};
    return PS_ERR_RULE;
}

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    const int32_t p = config->p;
    void *room;
    ps_status status = ps_alloc(2 * (int64_t)p, sizeof(int32_t), &room);
    if (status != PS_OK)
        return status;
    int32_t *down = room;
    int32_t *up = down + p;
    for (int32_t s = 0; s < p; s++) {
        down[s] = s;
        up[s] = p - 1 - s;
    }
    const int32_t half = config->m / 2;
    const ps_pipe pipes[2] = {{down, 0, config->m - half}, {up, config->m - half, half}};
    const ps_list_plan plan = {.p = p, .num_stages = p, .num_pipes = 2, .pipes = pipes};
    status = ps_list_schedule(&plan, offsets, ops);
    free(room);
    return status;
}

const ps_family ps_family_chimera = {
    .name = "chimera",
    .title = "Chimera",
    .summary =
        "Two pipelines in opposite directions, half of the micro-batches each: the first half, "
        "and the odd one, enter at rank 0. The paper draws the order and gives no rule: here "
        "it "
        "is list scheduling in unit time, which reaches the paper's makespans. Every rank "
        "holds "
        "two stages; all weights exist twice.",
    .constraints = "p even",
    .placement = "bidirectional",
    .source = "Li and Hoefler, Chimera, arXiv 2107.06925",
    .check = check,
    .length = ps_length_f_b,
    .fill = fill,
};
