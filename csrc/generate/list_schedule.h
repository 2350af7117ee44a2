/* Orders for schedules whose papers draw them but give no rule: list scheduling.
 *
 * Every op takes one unit of time. In each unit every rank that has ops ready runs
 * one of them: backward before forward, then the older micro-batch (by its place in
 * its pipeline), then the earlier pipeline. Backward first is what bounds the memory. */
#ifndef PS_LIST_SCHEDULE_H
#define PS_LIST_SCHEDULE_H

#include "../ps_generate.h"

/* One pipeline through the ranks; several may share them. */
typedef struct ps_pipe {
    const int32_t *rank; /* of each stage; the caller's */
    int32_t first;       /* micro-batches first .. first+count-1 */
    int32_t count;
} ps_pipe;

/* The ranks and the pipelines over them. Every rank holds the same number of stages of
 * each pipeline. */
typedef struct ps_list_plan {
    int32_t p;
    int32_t num_stages;
    int32_t num_pipes;
    const ps_pipe *pipes;
} ps_list_plan;

/* Write every rank's F and B in that order; rank r's at ops[offsets[r]]. Linear in the
 * ops, times the logarithm of the stages a rank holds; scratch linear in the stages.
 * PS_ERR_MEMORY, PS_ERR_OVERFLOW. */
PS_MUST_CHECK ps_status ps_list_schedule(const ps_list_plan *plan, const int64_t *offsets,
                                         ps_op *ops);

#endif
