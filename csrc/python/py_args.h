/* Arguments of the fast calls (METH_FASTCALL | METH_KEYWORDS), and numbers. */
#ifndef PS_PY_ARGS_H
#define PS_PY_ARGS_H

#include "py_common.h"

/* Sort count required arguments, given by position or by name, into out
 * (borrowed). 0, or -1 with Python's usual TypeError. */
int ps_py_args(const char *function, const char *const *names, Py_ssize_t count,
               PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **out);

/* Is number a Python int that fits? Then *out is its value. Never raises. */
static inline int ps_py_small_int(PyObject *number, int64_t *out)
{
    if (!PyLong_CheckExact(number))
        return 0;
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    *out = value;
    return overflow == 0;
}

/* What has __index__, as a Python int (new reference). NULL with a TypeError that
 * names the argument. */
PyObject *ps_py_index(const char *name, PyObject *argument);

/* A count, at least 1, as a Python int (new reference) of any size. NULL with a
 * TypeError or a ValueError that names the argument and its value. *small is the
 * value, or 0 where it does not fit. */
PyObject *ps_py_count(const char *name, PyObject *argument, int64_t *small);

#endif
