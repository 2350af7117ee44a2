/* ZB-V: zero bubble on a V, with the activations of 1F1B.
 *
 * The hand-made order needs 2p-1 micro-batches to fill the V. With fewer, the
 * order for 2p-1 is made and what lies beyond m is left out; so the turns below
 * count micro-batches that may never be written. */
#include "families.h"
#include "order.h"
#include "v_shape.h"

typedef struct turn_op {
    ps_kind kind;
    int chunk;
} turn_op;

/* One rank while it is written: which micro-batch each kind and chunk takes next. */
typedef struct writer {
    ps_op *out;
    int32_t m;
    int32_t stage[2];
    int64_t next[PS_NUM_COMPUTE_KINDS][2];
} writer;

/* The same few ops, each of another kind or chunk, `turns` times over. */
static void repeat(writer *w, int64_t turns, int length, const turn_op *turn)
{
    int64_t most = 0; /* turns in which any op lies below m */
    for (int i = 0; i < length; i++) {
        int64_t left = w->m - w->next[turn[i].kind][turn[i].chunk];
        most = left > most ? left : most;
    }
    most = turns < most ? turns : most;
    for (int64_t k = 0; k < most; k++) {
        for (int i = 0; i < length; i++) {
            int64_t j = w->next[turn[i].kind][turn[i].chunk] + k;
            if (j < w->m)
                w->out = ps_put(w->out, w->stage[turn[i].chunk], (int32_t)j, turn[i].kind);
        }
    }
    for (int i = 0; i < length; i++)
        w->next[turn[i].kind][turn[i].chunk] += turns;
}

#define REPEAT(w, turns, turn) repeat(w, turns, (int)(sizeof(turn) / sizeof *(turn)), turn)

static const turn_op f0[] = {{PS_F, 0}};
static const turn_op f1_f0[] = {{PS_F, 1}, {PS_F, 0}};
static const turn_op f1_i1_w1[] = {{PS_F, 1}, {PS_I, 1}, {PS_W, 1}};
static const turn_op stable[] = {{PS_F, 0}, {PS_I, 0}, {PS_W, 0},
                                 {PS_F, 1}, {PS_I, 1}, {PS_W, 1}};
static const turn_op i0_i1[] = {{PS_I, 0}, {PS_I, 1}};
static const turn_op i0_w0[] = {{PS_I, 0}, {PS_W, 0}};
static const turn_op w1[] = {{PS_W, 1}};
static const turn_op w0[] = {{PS_W, 0}};

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    const int64_t p = config->p;
    const int64_t n = config->m > 2 * p - 1 ? config->m : 2 * p - 1;
    for (int32_t r = 0; r < config->p; r++) {
        writer w = {.out = ops + offsets[r],
                    .m = config->m,
                    .stage = {ps_v_stage(config->p, r, 0), ps_v_stage(config->p, r, 1)}};
        /* warm-up */
        REPEAT(&w, 2 * (p - r) - 1, f0);
        REPEAT(&w, r, f1_f0);
        REPEAT(&w, p - r, f1_i1_w1);
        /* stable: until the first chunk has no forwards left, then without them */
        REPEAT(&w, n - (2 * p - 1 - r), stable);
        repeat(&w, p - 1 - r, 5, stable + 1);
        /* cool-down */
        REPEAT(&w, r, i0_i1);
        REPEAT(&w, p - r, i0_w0);
        REPEAT(&w, r, w1);
        REPEAT(&w, r, w0);
    }
    return PS_OK;
}

const ps_family ps_family_zb_v = {
    .name = "zb-v",
    .title = "ZB-V",
    .summary =
        "Two chunks a rank in a V, the backward split; a rank starts its second chunk's "
        "backward at once. No span bubble at f=b=w for m >= 2p-1, with at most 2p chunks held "
        "(as 1F1B).",
    .constraints = "",
    .placement = "v",
    .source = "Qi et al., Pipeline Parallelism with Controllable Memory, arXiv 2405.15362; "
              "the fixed order is torch's ScheduleZBVZeroBubble",
    .num_stages = ps_v_num_stages,
    .length = ps_v_length_split,
    .fill = fill,
};
