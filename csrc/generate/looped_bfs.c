/* Looped BFS: every chunk does all its micro-batches before the next chunk starts. */
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
    return ps_length_m_v(config, 2, config->option[V], out);
}

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    for (int32_t rank = 0; rank < config->p; rank++) {
        ps_op *out = ops + offsets[rank];
        for (int32_t chunk = 0; chunk < config->option[V]; chunk++)
            out = ps_order_run(out, chunk * config->p + rank, config->m, PS_F);
        for (int32_t chunk = config->option[V] - 1; chunk >= 0; chunk--)
            for (int32_t j = config->m - 1; j >= 0; j--)
                out = ps_put(out, chunk * config->p + rank, j, PS_B);
    }
    return PS_OK;
}

static const ps_option options[] = {
    [V] = {"v", 2, 1, NULL, "stages a rank (virtual stages)"},
};

const ps_family ps_family_looped_bfs = {
    .name = "looped-bfs",
    .title = "looped BFS (breadth-first)",
    .summary = "All forwards of a rank's first chunk, then of its second, ...; backwards with "
               "chunks and micro-batches in reverse. Few, large messages; everything is held.",
    .constraints = "",
    .placement = "loop",
    .source = "Lamy-Poirier, Breadth-First Pipeline Parallelism, arXiv 2211.05953",
    .options = options,
    .num_options = 1,
    .num_stages = num_stages,
    .length = length,
    .fill = fill,
};
