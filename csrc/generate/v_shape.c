#include "v_shape.h"

#include "order.h"

ps_status ps_v_num_stages(const ps_config *config, int64_t *out)
{
    return ps_mul(2, config->p, out);
}

ps_status ps_v_length_split(const ps_config *config, int32_t rank, int64_t *out)
{
    (void)rank;
    return ps_length_m_v(config, 3, 2, out);
}
