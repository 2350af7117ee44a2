#include "order.h"

ps_op *ps_order_run(ps_op *out, int32_t stage, int32_t count, ps_kind kind)
{
    for (int32_t j = 0; j < count; j++)
        out = ps_put(out, stage, j, kind);
    return out;
}

void ps_order_1f1b(ps_op *out, int32_t stage, int32_t first, int32_t step, int32_t count,
                   int64_t warmup)
{
    /* Wide, since first + count * step may lie just above an int32. */
    int64_t forward = first;
    int64_t backward = first;
    int32_t ahead = warmup < count ? (int32_t)warmup : count;
    for (int32_t i = 0; i < ahead; i++, forward += step)
        out = ps_put(out, stage, (int32_t)forward, PS_F);
    for (int32_t i = ahead; i < count; i++, forward += step, backward += step) {
        out = ps_put(out, stage, (int32_t)forward, PS_F);
        out = ps_put(out, stage, (int32_t)backward, PS_B);
    }
    for (int32_t i = 0; i < ahead; i++, backward += step)
        out = ps_put(out, stage, (int32_t)backward, PS_B);
}

ps_status ps_length_f_b(const ps_config *config, int32_t rank, int64_t *out)
{
    (void)rank;
    return ps_mul(2, config->m, out);
}
