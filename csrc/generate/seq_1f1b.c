/* Seq1F1B: 1F1B in units of sequence splits.
 *
 * Split i of micro-batch j is micro-batch j * splits + i of the schedule. Between the
 * splits of one micro-batch the definition adds, on every stage, that a split's forward
 * follows the one before it (whose keys and values it attends to) and its backward the
 * one after it. Both ends of these dependencies stand on the same rank, and the order
 * written here satisfies them, so the representation's own rule leaves nothing out.
 */
#include "families.h"
#include "order.h"

enum { SPLITS };

static ps_status num_microbatches(const ps_config *config, int64_t *out)
{
    return ps_mul(config->m, config->option[SPLITS], out);
}

static ps_status length(const ps_config *config, int32_t rank, int64_t *out)
{
    (void)rank;
    return ps_length_m_v(config, 2, config->option[SPLITS], out);
}

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    const int32_t splits = config->option[SPLITS];
    const int32_t count = config->m * splits; /* fits: num_microbatches */
    for (int32_t rank = 0; rank < config->p; rank++) {
        const int64_t warmup = (int64_t)config->p - 2 - rank + splits;
        const int32_t ahead = warmup < count ? (int32_t)warmup : count;
        ps_op *out = ps_order_run(ops + offsets[rank], rank, ahead, PS_F);
        int32_t forward = ahead;
        /* Backwards: micro-batches in order, the splits of each from the last. */
        for (int32_t base = 0; base < count; base += splits) {
            for (int32_t i = splits - 1; i >= 0; i--) {
                if (forward < count)
                    out = ps_put(out, rank, forward++, PS_F);
                out = ps_put(out, rank, base + i, PS_B);
            }
        }
    }
    return PS_OK;
}

static const ps_option options[] = {
    [SPLITS] = {"splits", 2, 1, NULL, "sequence splits of each micro-batch"},
};

const ps_family ps_family_seq_1f1b = {
    .name = "seq-1f1b",
    .title = "Seq1F1B",
    .summary = "1F1B whose unit is a sequence split: split i of micro-batch j stands as "
               "micro-batch j * splits + i, and the splits of a micro-batch run backward in "
               "reverse. With k splits a unit costs, and holds, about 1/k of a micro-batch.",
    .constraints = "causal attention; costs and memory are those of one split",
    .placement = "loop",
    .source = "Sun et al., Seq1F1B, arXiv 2406.03488",
    .options = options,
    .num_options = 1,
    .num_microbatches = num_microbatches,
    .length = length,
    .fill = fill,
};
