/* Schedules for the C tests, written out. */
#ifndef SCHEDULES_H
#define SCHEDULES_H

#include "ps_schedule.h"

#define OP(kind, stage, microbatch)                                                            \
    {                                                                                          \
        stage, microbatch, kind, 0                                                             \
    }
#define PAIRED(kind, stage, microbatch)                                                        \
    {                                                                                          \
        stage, microbatch, kind, 1                                                             \
    }
#define COUNT(array) ((int64_t)(sizeof(array) / sizeof(array)[0]))

/* Two ranks, two stages, two micro-batches: 1F1B. */
static const ps_op ONE_F_ONE_B[] = {
    OP(PS_F, 0, 0), OP(PS_F, 0, 1), OP(PS_B, 0, 0), OP(PS_B, 0, 1),
    OP(PS_F, 1, 0), OP(PS_B, 1, 0), OP(PS_F, 1, 1), OP(PS_B, 1, 1),
};
static const int64_t FOUR_EACH[] = {0, 4, 8};

static inline ps_schedule two_ranks(const ps_op *ops)
{
    return (ps_schedule){ops, FOUR_EACH, 2, 2, 2};
}

#endif
