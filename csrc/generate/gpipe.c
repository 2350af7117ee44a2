/* GPipe: all forwards, then all backwards. */
#include "families.h"
#include "order.h"

enum { ORDER };
enum { FORWARD, REVERSED };

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    for (int32_t rank = 0; rank < config->p; rank++) {
        ps_op *out = ps_order_run(ops + offsets[rank], rank, config->m, PS_F);
        if (config->option[ORDER] == FORWARD) {
            ps_order_run(out, rank, config->m, PS_B);
        } else {
            for (int32_t j = config->m - 1; j >= 0; j--)
                out = ps_put(out, rank, j, PS_B);
        }
    }
    return PS_OK;
}

static const char *const order_words[] = {"forward", "reversed", NULL};

static const ps_option options[] = {
    [ORDER] =
        {"order", FORWARD, 0, order_words,
         "backwards in the order of the forwards (as torch runs them) or reversed (as in the "
         "paper's figure)"},
};

const ps_family ps_family_gpipe = {
    .name = "gpipe",
    .title = "GPipe",
    .summary = "All forwards, then all backwards. Every micro-batch is held at the same time.",
    .constraints = "",
    .placement = "loop",
    .source = "Huang et al., GPipe, arXiv 1811.06965",
    .options = options,
    .num_options = 1,
    .length = ps_length_f_b,
    .fill = fill,
};
