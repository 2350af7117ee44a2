#include "dualpipe_order.h"

#include "order.h"

/* A rank while it is written. */
typedef struct writer {
    const ps_dualpipe_rank *rank;
    ps_op *out;
    int32_t forwards[2];  /* written so far, by lane */
    int32_t backwards[2]; /* written so far, by lane, B or I */
    const ps_op *weight;  /* every I up to here has its W */
} writer;

static void put_f(writer *w, int lane)
{
    const ps_dualpipe_rank *rank = w->rank;
    w->out = ps_put(w->out, rank->stage[lane], rank->first[lane] + w->forwards[lane]++, PS_F);
}

static void put_b(writer *w, int lane, ps_kind kind)
{
    const ps_dualpipe_rank *rank = w->rank;
    w->out = ps_put(w->out, rank->stage[lane], rank->first[lane] + w->backwards[lane]++, kind);
}

/* Forward of one lane and backward of the other as an overlapped pair. */
static void put_pair(writer *w, int lane)
{
    put_f(w, lane);
    w->out[-1].fuse = 1;
    put_b(w, 1 - lane, PS_B);
}

/* The W of the oldest I that has none yet: the list written so far is the queue. */
static void put_w(writer *w)
{
    while (w->weight->kind != PS_I)
        w->weight++;
    w->out = ps_put(w->out, w->weight->stage, w->weight->microbatch, PS_W);
    w->weight++;
}

int64_t ps_dualpipe_length(int32_t half, int32_t depth, int32_t count)
{
    /* Split: half-depth-1 of the third step, depth+1 of the sixth, half-depth-1 of the
     * seventh. */
    return 4 * (int64_t)count + 2 * (int64_t)half - depth - 1;
}

void ps_dualpipe_order(const ps_dualpipe_rank *rank, ps_op *out)
{
    const int32_t behind = rank->half - rank->depth - 1; /* ranks on to the turn */
    const int32_t turns = rank->depth + 1;
    writer w = {.rank = rank, .out = out, .weight = out};

    for (int32_t i = 0; i < 2 * behind; i++)
        put_f(&w, 0);
    for (int32_t i = 0; i < turns; i++) {
        put_f(&w, 0);
        put_f(&w, 1);
    }
    for (int32_t i = 0; i < behind; i++) {
        put_b(&w, 1, PS_I);
        put_w(&w);
        put_f(&w, 1);
    }
    /* The main step. At the turn the first pair's backward is what everyone waits for, so
     * it does not share its time there. */
    for (int32_t i = 0; i < rank->count - 2 * rank->half + turns; i++) {
        if (i == 0 && behind == 0) {
            put_f(&w, 0);
            put_b(&w, 1, PS_B);
        } else {
            put_pair(&w, 0);
        }
        put_pair(&w, 1);
    }
    for (int32_t i = 0; i < behind; i++) {
        put_b(&w, 1, PS_B);
        put_pair(&w, 1);
    }
    /* Backwards alternate; the later half of them leaves its W for the end. */
    for (int32_t i = 0; i < 2 * turns; i++)
        put_b(&w, 1 - i % 2, i < turns ? PS_B : PS_I);
    for (int32_t i = 0; i < behind; i++) {
        put_w(&w);
        put_b(&w, 0, PS_I);
    }
    for (int32_t i = 0; i < turns; i++)
        put_w(&w);
}
