/* What every file of the glue shares: CPython, NumPy, the module's state, and
 * the one function that turns a ps_status into an exception.
 *
 * The glue checks arguments, makes arrays and lets the GIL go; it computes
 * nothing. Each area has one file py_<area>.c that offers ps_py_add_<area>.
 */
#ifndef PS_PY_COMMON_H
#define PS_PY_COMMON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_25_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL pipesched_ARRAY_API
#ifndef PS_PY_MODULE_FILE
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "../ps_schedule.h"
#include "../ps_table.h"

typedef struct ps_py_state {
    PyArray_Descr *op_dtype;               /* the layout of ps_op */
    const ps_table_kernels *table_kernels; /* what this CPU runs fastest */
} ps_py_state;

static inline ps_py_state *ps_py_get_state(PyObject *module)
{
    return (ps_py_state *)PyModule_GetState(module);
}

/* Raise for a status that carries no detail (sizes, memory); returns NULL. */
PyObject *ps_py_raise(ps_status status);

/* Each adds its area's functions to the module; 0, or -1 with an exception. */
int ps_py_add_table(PyObject *module);
int ps_py_add_generate(PyObject *module);
int ps_py_add_partition(PyObject *module);
int ps_py_add_check(PyObject *module);
int ps_py_add_lower(PyObject *module);
int ps_py_add_simulate(PyObject *module);
int ps_py_add_words(PyObject *module);

#endif
