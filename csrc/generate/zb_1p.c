/* ZB-1P: torch's interleaved zero bubble schedule.
 *
 * Interleaved 1F1B with the backward split and one warm-up forward a hop; Ws lag r
 * behind the Is. torch takes only an m that its max(1, m / p) rounds divide; the default
 * group is torch's there, and keeps the bubble for every other m >= p.
 */
#include "families.h"
#include "order.h"

enum { V };

static ps_status num_stages(const ps_config *config, int64_t *out)
{
    return ps_mul(config->p, config->option[V], out);
}

static ps_status length(const ps_config *config, int32_t rank, int64_t *out)
{
    (void)rank;
    return ps_length_m_v(config, 3, config->option[V], out);
}

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    const int32_t v = config->option[V];
    const int32_t group = ps_default_group(config);
    for (int32_t rank = 0; rank < config->p; rank++) {
        const int64_t warmup = ((int64_t)v - 1) * group + config->p - 1 - rank;
        ps_order_interleaved_split(ops + offsets[rank], rank, config, v, group, warmup, rank);
    }
    return PS_OK;
}

static const ps_option options[] = {
    [V] = {"v", 2, 1, NULL, "stages a rank (virtual stages)"},
};

const ps_family ps_family_zb_1p = {
    .name = "zb-1p",
    .title = "ZB-1P (torch's InterleavedZeroBubble)",
    .summary = "Interleaved 1F1B with B split into I and W: Ws fill the bubbles, memory stays "
               "that of 1F1B. v = 1 is ZB-H1.",
    .constraints = "",
    .placement = "loop",
    .source = "PyTorch, torch.distributed.pipelining.ScheduleInterleavedZeroBubble; Qi et al., "
              "arXiv 2401.10241",
    .options = options,
    .num_options = 1,
    .num_stages = num_stages,
    .length = length,
    .fill = fill,
};
