/* From a Schedule (or what looks like one) to the core's view of it. */
#ifndef PS_PY_ARRAYS_H
#define PS_PY_ARRAYS_H

#include "py_common.h"

/* A schedule's arrays, held until ps_py_schedule_clear. */
typedef struct ps_py_schedule {
    ps_schedule view;
    PyArrayObject *ops;
    PyArrayObject *offsets;
} ps_py_schedule;

/* Read an object's ops, offsets, num_stages and num_microbatches. The arrays must be
 * C-contiguous, aligned, read-only and of the right types, the offsets in order and
 * the numbers in range; the ops themselves are not looked at, which every function of
 * the core does where it uses them as indices. 0, or -1 with an exception (nothing is
 * held then). */
int ps_py_schedule_read(PyObject *module, PyObject *schedule, ps_py_schedule *out);

void ps_py_schedule_clear(ps_py_schedule *self);

/* A new array for that many ops, not filled. NULL with an exception. */
PyArrayObject *ps_py_new_ops(PyObject *module, int64_t count);

/* (stage, microbatch, kind, fuse), as ScheduleError's writer takes it. */
PyObject *ps_py_op(ps_op op);

/* (status, rank, position, op, other_rank, other_position, other) of a fault. */
PyObject *ps_py_fault(ps_status status, const ps_fault *fault);

#endif
