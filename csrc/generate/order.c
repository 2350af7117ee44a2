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

int32_t ps_default_group(const ps_config *config)
{
    const int32_t p = config->p;
    const int32_t m = config->m;
    int32_t group = p < m ? p : m;
    while (m % group != 0 && m % group < p) {
        /* As long as the quotient stays, a larger group leaves a smaller remainder: 0 at
         * m / quotient, if at all. Ends at m, whose quotient is 1, at the latest. */
        const int32_t quotient = m / group;
        group = m / quotient + (m % quotient != 0);
    }
    return group;
}

void ps_order_interleaved(ps_op *out, int32_t rank, const ps_config *config, int32_t v,
                          int32_t group, int64_t warmup)
{
    const int64_t total = (int64_t)config->m * v;
    const int64_t ahead = warmup < total ? warmup : total;
    ps_table_walk forward = ps_table_start(config->m, v, group);
    ps_table_walk backward = forward;
    /* One op a turn: the walk decides the rest. */
    for (int64_t i = 0; i < total + ahead; i++) {
        if (i < total) {
            out = ps_put(out, forward.chunk * config->p + rank, forward.microbatch, PS_F);
            ps_table_step(&forward);
        }
        if (i >= ahead) {
            out = ps_put(out, (v - 1 - backward.chunk) * config->p + rank, backward.microbatch,
                         PS_B);
            ps_table_step(&backward);
        }
    }
}

void ps_order_interleaved_split(ps_op *out, int32_t rank, const ps_config *config, int32_t v,
                                int32_t group, int64_t warmup, int64_t behind)
{
    const int64_t total = (int64_t)config->m * v;
    const int64_t ahead = warmup < total ? warmup : total;
    ps_table_walk forward = ps_table_start(config->m, v, group);
    ps_table_walk backward = forward;
    ps_table_walk weight = forward;
    if (behind > total)
        behind = total;
    /* Past i = total + ahead only the Ws are left. */
    for (int64_t i = 0; i < total + ahead + behind; i++) {
        if (i < total) {
            out = ps_put(out, forward.chunk * config->p + rank, forward.microbatch, PS_F);
            ps_table_step(&forward);
        }
        if (i >= ahead && i < total + ahead) {
            out = ps_put(out, (v - 1 - backward.chunk) * config->p + rank, backward.microbatch,
                         PS_I);
            ps_table_step(&backward);
        }
        if (i >= ahead + behind) {
            out =
                ps_put(out, (v - 1 - weight.chunk) * config->p + rank, weight.microbatch, PS_W);
            ps_table_step(&weight);
        }
    }
}

ps_status ps_length_m_v(const ps_config *config, int32_t factor, int32_t v, int64_t *out)
{
    ps_status status = ps_mul(config->m, v, out);
    return status == PS_OK ? ps_mul(*out, factor, out) : status;
}

ps_status ps_length_f_i_w(const ps_config *config, int32_t rank, int64_t *out)
{
    (void)rank;
    return ps_mul(3, config->m, out);
}
