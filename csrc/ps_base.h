/* The ground floor of the core: status codes and overflow-checked sizes.
 *
 * Every function of the core that can fail returns a ps_status, which the
 * caller must look at. Negative codes are errors, grouped by area in steps of
 * 20. The core uses libc only: no Python, no globals, no I/O, no clock.
 */
#ifndef PS_BASE_H
#define PS_BASE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PS_MUST_CHECK __attribute__((warn_unused_result))
#else
#define PS_MUST_CHECK
#endif

typedef enum ps_status {
    PS_OK = 0,

    /* sizes and memory */
    PS_ERR_OVERFLOW = -1,    /* a size cannot be addressed */
    PS_ERR_MEMORY = -2,      /* the allocator gave nothing */
    PS_ERR_TOO_SMALL = -3,   /* an argument lies below its minimum */
    PS_ERR_TOO_LARGE = -4,   /* an argument lies above its maximum */
    PS_ERR_INTERRUPTED = -5, /* the caller asked to stop */

    /* making a schedule: the fault names the rule (ps_generate.h) */
    PS_ERR_RULE = -20,    /* the family's definition forbids these arguments */
    PS_ERR_UNKNOWN = -21, /* no such family or option */

    /* a schedule's ops: the fault names rank, position and op (ps_schedule.h) */
    PS_ERR_OP_RANGE = -40,    /* stage, micro-batch, kind or fuse out of range */
    PS_ERR_OP_REPEATED = -41, /* the same op stands twice */
    PS_ERR_OP_MISSING = -42,  /* an op that must be there is not */
    PS_ERR_OP_PLACE = -43,    /* a backward is not on the rank of its forward */
    PS_ERR_OP_ORDER = -44,    /* an op stands before one it depends on, same rank */
    PS_ERR_OP_SPLIT = -45,    /* W without I, I without W, or B beside I or W */
    PS_ERR_OP_PAIR = -46,     /* an overlapped pair that cannot be one */
    PS_ERR_OP_TRANSFER = -47, /* sends and receives that do not match */
    PS_ERR_DEADLOCK = -48,    /* the ranks wait for each other in a circle */
    PS_ERR_WORD = -49,        /* a cell is not one of torch's action words */

    /* costs and partitions */
    PS_ERR_COST = -60,      /* a cost is negative, NaN or infinite */
    PS_ERR_INFEASIBLE = -61 /* nothing satisfies the limits */
} ps_status;

/* A short English sentence for a status; never NULL. Static storage. */
const char *ps_strerror(ps_status status);

/* *out = a + b (a * b) for non-negative operands; PS_ERR_OVERFLOW, and *out
 * untouched, where the result does not fit in an int64_t. */
PS_MUST_CHECK ps_status ps_add(int64_t a, int64_t b, int64_t *out);
PS_MUST_CHECK ps_status ps_mul(int64_t a, int64_t b, int64_t *out);

/* *out = malloc / calloc of count items of the given size, checked for overflow
 * first. A count of 0 gives a valid pointer. The caller frees with free(). */
PS_MUST_CHECK ps_status ps_alloc(int64_t count, size_t size, void **out);
PS_MUST_CHECK ps_status ps_alloc_zeroed(int64_t count, size_t size, void **out);

#endif
