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

/* The micro-batches of one replica: replica, replica + replicas, ... below m. */
static int32_t share_of(int32_t m, int32_t replicas, int32_t replica)
{
    return replica < m ? (m - 1 - replica) / replicas + 1 : 0;
}

ps_status ps_replicated_ranks(const int32_t *replicas, int32_t num_stages, int32_t *ranks)
{
    if (num_stages < 1)
        return PS_ERR_TOO_SMALL;
    int64_t total = 0;
    for (int32_t s = 0; s < num_stages; s++) {
        if (replicas[s] < 1)
            return PS_ERR_TOO_SMALL;
        total += replicas[s]; /* 2**31 stages of 2**31 replicas are below 2**63 */
        if (total > INT32_MAX)
            return PS_ERR_OVERFLOW;
    }
    *ranks = (int32_t)total;
    return PS_OK;
}

ps_status ps_replicated_offsets(const int32_t *replicas, int32_t num_stages, int32_t m,
                                int64_t *offsets)
{
    int32_t ranks;
    ps_status status = ps_replicated_ranks(replicas, num_stages, &ranks);
    if (status != PS_OK)
        return status;
    if (m < 1)
        return PS_ERR_TOO_SMALL;
    int32_t rank = 0;
    offsets[0] = 0;
    for (int32_t s = 0; s < num_stages; s++)
        for (int32_t replica = 0; replica < replicas[s]; replica++, rank++) {
            status = ps_add(offsets[rank], 2 * (int64_t)share_of(m, replicas[s], replica),
                            &offsets[rank + 1]);
            if (status != PS_OK)
                return status;
        }
    return PS_OK;
}

ps_status ps_replicated_fill(const int32_t *replicas, const int32_t *in_flight,
                             int32_t num_stages, int32_t m, const int64_t *offsets, ps_op *ops)
{
    int32_t rank = 0;
    for (int32_t s = 0; s < num_stages; s++) {
        if (in_flight[s] < 1)
            return PS_ERR_TOO_SMALL;
        for (int32_t replica = 0; replica < replicas[s]; replica++, rank++)
            ps_order_1f1b(ops + offsets[rank], s, replica, replicas[s],
                          share_of(m, replicas[s], replica), in_flight[s] - 1);
    }
    return PS_OK;
}
