/* The V placement, for the families that fold the model once: two chunks a rank,
 * chunk 0 is stage rank, chunk 1 is stage 2p-1-rank. Allocates nothing. */
#ifndef PS_V_SHAPE_H
#define PS_V_SHAPE_H

#include "../ps_generate.h"

/* The stage of a chunk (0 or 1) of a rank; 2p fits an int32 by then. */
static inline int32_t ps_v_stage(int32_t p, int32_t rank, int chunk)
{
    return chunk == 0 ? rank : 2 * p - 1 - rank;
}

/* *out = 2p. */
PS_MUST_CHECK ps_status ps_v_num_stages(const ps_config *config, int64_t *out);

/* *out = 6m: F, I and W of both chunks. */
PS_MUST_CHECK ps_status ps_v_length_split(const ps_config *config, int32_t rank, int64_t *out);

#endif
