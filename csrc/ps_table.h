/* The exercise: GPipe's forward schedule as a table, and its idle cells.
 *
 * The table has one row per rank and one column per slot; a cell holds the
 * micro-batch that the rank works on in that slot, or -1 where it is idle. Rank
 * r does micro-batch j in slot r + j, so that p ranks and m micro-batches need
 * m + p - 1 slots.
 *
 * The two loops exist in a plain form and in wider ones for CPUs that have the
 * instructions; all give the same table and the same counts.
 */
#ifndef PS_TABLE_H
#define PS_TABLE_H

#include "ps_base.h"

/* A 2-D array of signed integers of 1, 2, 4 or 8 bytes, not owned: any strides
 * (in bytes, also negative or 0), any alignment, either byte order. */
typedef struct ps_table_view {
    const char *data;
    int64_t shape[2];
    int64_t strides[2];
    size_t itemsize;
} ps_table_view;

/* One way of running the loops. */
typedef struct ps_table_kernels {
    const char *name;
    /* Fill a table of p rows and m + p - 1 columns, C-contiguous. */
    void (*fill_forward)(int64_t p, int64_t m, int64_t *table);
    /* How many of count adjacent integers of itemsize bytes are -1. */
    int64_t (*count_idle)(const char *cells, int64_t count, size_t itemsize);
} ps_table_kernels;

/* The sets of kernels that this CPU can run, plain first, widest last; NULL past
 * the end. */
const ps_table_kernels *ps_table_kernels_at(int32_t index);
/* The widest of them. */
const ps_table_kernels *ps_table_kernels_best(void);

/* *slots = m + p - 1 and *cells = p * slots, for p, m >= 1. PS_ERR_TOO_SMALL, or
 * PS_ERR_OVERFLOW where p * slots int64 cells cannot be addressed. O(1). */
PS_MUST_CHECK ps_status ps_table_shape(int64_t p, int64_t m, int64_t *slots, int64_t *cells);

/* How many cells of the view are -1. Linear in the cells that differ in address:
 * an axis of stride 0 is read once. */
int64_t ps_table_count_idle(const ps_table_view *view, const ps_table_kernels *kernels);

#endif
