/* The exercise: gpipe_forward_schedule, bubble_fraction, bubble_formula. */
#include "py_args.h"

/* Cells from which the loops take longer than some 10 microseconds. */
enum { LONG_LOOP = 1 << 15 };

/* p and m of a call. Small Python ints, nearly all there are, make no object;
 * others come as Python ints in number (new references). 0, or -1 with an error. */
typedef struct pair {
    int64_t value[2]; /* 0: does not fit, see number */
    PyObject *number[2];
} pair;

static const char *const PAIR_NAMES[] = {"p", "m"};

static void pair_clear(pair *self)
{
    Py_CLEAR(self->number[0]);
    Py_CLEAR(self->number[1]);
}

static int pair_read(const char *function, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames, pair *out)
{
    PyObject *given[2];
    *out = (pair){{0, 0}, {NULL, NULL}};
    if (nargs == 2 && kwnames == NULL) {
        given[0] = args[0];
        given[1] = args[1];
    } else if (ps_py_args(function, PAIR_NAMES, 2, args, nargs, kwnames, given) < 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        if (ps_py_small_int(given[i], &out->value[i]) && out->value[i] >= 1)
            continue;
        out->number[i] = ps_py_count(PAIR_NAMES[i], given[i], &out->value[i]);
        if (out->number[i] == NULL) {
            pair_clear(out);
            return -1;
        }
    }
    return 0;
}

static PyObject *too_large(const pair *size)
{
    if (size->value[0] != 0 && size->value[1] != 0)
        return PyErr_Format(
            PyExc_OverflowError,
            "p * (m + p - 1) cells of 8 bytes cannot be addressed: p=%lld, m=%lld",
            (long long)size->value[0], (long long)size->value[1]);
    return PyErr_Format(
        PyExc_OverflowError,
        "p * (m + p - 1) cells of 8 bytes cannot be addressed: %s is at least 2**63",
        size->value[0] == 0 ? "p" : "m");
}

PyDoc_STRVAR(
    gpipe_forward_schedule_doc,
    "gpipe_forward_schedule($module, p, m)\n"
    "--\n"
    "\n"
    "GPipe's forward schedule as a table of ranks and slots.\n"
    "\n"
    "Rank ``r`` works on micro-batch ``j`` in slot ``r + j``; a cell that is -1 is idle.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "p : int\n"
    "    Ranks, one stage on each; at least 1.\n"
    "m : int\n"
    "    Micro-batches; at least 1, and they may be fewer than the ranks.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "numpy.ndarray\n"
    "    A new int64 array of shape ``(p, m + p - 1)``, C-contiguous and writable: the\n"
    "    micro-batch in each rank's each slot, or -1.\n"
    "\n"
    "Raises\n"
    "------\n"
    "TypeError\n"
    "    An argument is not an integer.\n"
    "ValueError\n"
    "    An argument is less than 1.\n"
    "OverflowError\n"
    "    A table of this size cannot be addressed.\n"
    "MemoryError\n"
    "    There is no memory for the table.\n"
    "\n"
    "See Also\n"
    "--------\n"
    "bubble_fraction : What part of the table is idle.\n"
    "\n"
    "Examples\n"
    "--------\n"
    ">>> import pipesched as ps\n"
    ">>> ps.gpipe_forward_schedule(3, 2)\n"
    "array([[ 0,  1, -1, -1],\n"
    "       [-1,  0,  1, -1],\n"
    "       [-1, -1,  0,  1]])\n");

static PyObject *gpipe_forward_schedule(PyObject *module, PyObject *const *args,
                                        Py_ssize_t nargs, PyObject *kwnames)
{
    pair size;
    if (pair_read("gpipe_forward_schedule", args, nargs, kwnames, &size) < 0)
        return NULL;
    PyObject *table = NULL;
    int64_t slots, cells;
    if (size.value[0] == 0 || size.value[1] == 0 ||
        ps_table_shape(size.value[0], size.value[1], &slots, &cells) != PS_OK) {
        too_large(&size);
        goto done;
    }
    npy_intp shape[2] = {(npy_intp)size.value[0], (npy_intp)slots};
    table = PyArray_SimpleNew(2, shape, NPY_INT64);
    if (table == NULL)
        goto done;
    int64_t *data = (int64_t *)PyArray_DATA((PyArrayObject *)table);
    const ps_table_kernels *kernels = ps_py_get_state(module)->table_kernels;
    if (cells < LONG_LOOP) {
        kernels->fill_forward(size.value[0], size.value[1], data);
    } else {
        Py_BEGIN_ALLOW_THREADS
        kernels->fill_forward(size.value[0], size.value[1], data);
        Py_END_ALLOW_THREADS
    }
done:
    pair_clear(&size);
    return table;
}

/* a / b, correctly rounded: the quotient of two doubles is, where both are exact. */
static PyObject *quotient(int64_t a, int64_t b)
{
    const int64_t exact = INT64_C(1) << 53;
    if (a <= exact && b <= exact)
        return PyFloat_FromDouble((double)a / (double)b);
    PyObject *result = NULL;
    PyObject *numerator = PyLong_FromLongLong(a);
    PyObject *denominator = PyLong_FromLongLong(b);
    if (numerator != NULL && denominator != NULL)
        result = PyNumber_TrueDivide(numerator, denominator);
    Py_XDECREF(numerator);
    Py_XDECREF(denominator);
    return result;
}

PyDoc_STRVAR(
    bubble_fraction_doc,
    "bubble_fraction($module, schedule)\n"
    "--\n"
    "\n"
    "The idle part of a schedule's table: its cells that are -1, by all its cells.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "schedule : array_like of int\n"
    "    A table of ranks and slots in any integer type and any layout, or what NumPy\n"
    "    makes one of: a list of rows, or a schedule. It is not changed, and an array is\n"
    "    not copied.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "float\n"
    "    idle / total, on the base of ranks times slots, correctly rounded.\n"
    "\n"
    "Raises\n"
    "------\n"
    "TypeError\n"
    "    The cells are not integers.\n"
    "ValueError\n"
    "    The table is empty, or does not have two axes.\n"
    "\n"
    "See Also\n"
    "--------\n"
    "bubble_formula : The same by formula, for GPipe's forward schedule.\n"
    "\n"
    "Examples\n"
    "--------\n"
    ">>> import pipesched as ps\n"
    ">>> ps.bubble_fraction([[0, 1, -1], [-1, 0, 1]])\n"
    "0.3333333333333333\n"
    ">>> ps.bubble_fraction(ps.gpipe_forward_schedule(4, 8))\n"
    "0.2727272727272727\n");

static const char *const FRACTION_NAMES[] = {"schedule"};

/* The table as NumPy sees it (new reference). */
static PyArrayObject *as_array(PyObject *schedule)
{
    PyObject *array = PyArray_FROM_O(schedule);
    if (array == NULL && PyErr_ExceptionMatches(PyExc_ValueError) &&
        (PyList_Check(schedule) || PyTuple_Check(schedule)))
        PyErr_SetString(PyExc_ValueError,
                        "schedule must be a table of ranks and slots, but its "
                        "rows have different lengths");
    return (PyArrayObject *)array;
}

/* Not a table of integers: say why; -1. */
static int check_table(PyArrayObject *array)
{
    int axes = PyArray_NDIM(array);
    if (PyArray_SIZE(array) == 0) {
        PyErr_SetString(
            PyExc_ValueError,
            "schedule must have at least one rank and one slot, got an empty table");
        return -1;
    }
    if (!PyArray_ISINTEGER(array)) {
        PyErr_Format(PyExc_TypeError,
                     "schedule must hold integers (micro-batches, or -1 where idle) of one "
                     "NumPy integer type, got %S",
                     PyArray_DESCR(array));
        return -1;
    }
    if (axes != 2) {
        PyErr_Format(PyExc_ValueError,
                     "schedule must have two axes, ranks and slots, got %d ax%s", axes,
                     axes == 1 ? "is" : "es");
        return -1;
    }
    return 0;
}

static int64_t count_idle(PyArrayObject *array, const ps_table_kernels *kernels)
{
    const npy_intp *shape = PyArray_DIMS(array);
    const npy_intp *strides = PyArray_STRIDES(array);
    if (PyArray_ISUNSIGNED(array))
        return 0; /* no unsigned cell is -1 */
    ps_table_view view = {
        PyArray_BYTES(array),
        {shape[0], shape[1]},
        {strides[0], strides[1]},
        (size_t)PyArray_ITEMSIZE(array),
    };
    if (PyArray_SIZE(array) < LONG_LOOP)
        return ps_table_count_idle(&view, kernels);
    int64_t idle;
    Py_BEGIN_ALLOW_THREADS
    idle = ps_table_count_idle(&view, kernels);
    Py_END_ALLOW_THREADS
    return idle;
}

static PyObject *bubble_fraction(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames)
{
    PyObject *schedule;
    if (nargs == 1 && kwnames == NULL)
        schedule = args[0];
    else if (ps_py_args("bubble_fraction", FRACTION_NAMES, 1, args, nargs, kwnames, &schedule) <
             0)
        return NULL;
    PyArrayObject *array = as_array(schedule);
    if (array == NULL)
        return NULL;
    PyObject *result = NULL;
    if (check_table(array) == 0)
        result = quotient(count_idle(array, ps_py_get_state(module)->table_kernels),
                          PyArray_SIZE(array));
    Py_DECREF(array);
    return result;
}

PyDoc_STRVAR(
    bubble_formula_doc,
    "bubble_formula($module, p, m)\n"
    "--\n"
    "\n"
    "The bubble of GPipe's forward schedule: (p - 1) / (m + p - 1).\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "p : int\n"
    "    Ranks; at least 1.\n"
    "m : int\n"
    "    Micro-batches; at least 1.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "float\n"
    "    idle / total, on the base of ranks times slots, correctly rounded for\n"
    "    integers of any size.\n"
    "\n"
    "Raises\n"
    "------\n"
    "TypeError\n"
    "    An argument is not an integer.\n"
    "ValueError\n"
    "    An argument is less than 1.\n"
    "\n"
    "See Also\n"
    "--------\n"
    "bubble_fraction : The same, counted in a table.\n"
    "\n"
    "Examples\n"
    "--------\n"
    ">>> import pipesched as ps\n"
    ">>> ps.bubble_formula(4, 8)\n"
    "0.2727272727272727\n"
    ">>> ps.bubble_formula(4, 8) == ps.bubble_fraction(ps.gpipe_forward_schedule(4, 8))\n"
    "True\n");

/* The count as a Python int, made where the call brought a small one. */
static PyObject *pair_number(const pair *size, int i)
{
    return size->number[i] != NULL ? Py_NewRef(size->number[i])
                                   : PyLong_FromLongLong(size->value[i]);
}

/* (p - 1) / (m + p - 1) in Python's integers. */
static PyObject *formula_long(const pair *size)
{
    PyObject *one = PyLong_FromLong(1);
    PyObject *p = pair_number(size, 0);
    PyObject *m = pair_number(size, 1);
    PyObject *idle = NULL, *slots = NULL, *result = NULL;
    if (one == NULL || p == NULL || m == NULL)
        goto done;
    idle = PyNumber_Subtract(p, one);
    if (idle == NULL)
        goto done;
    slots = PyNumber_Add(m, idle);
    if (slots == NULL)
        goto done;
    result = PyNumber_TrueDivide(idle, slots);
done:
    Py_XDECREF(slots);
    Py_XDECREF(idle);
    Py_XDECREF(m);
    Py_XDECREF(p);
    Py_XDECREF(one);
    return result;
}

static PyObject *bubble_formula(PyObject *Py_UNUSED(module), PyObject *const *args,
                                Py_ssize_t nargs, PyObject *kwnames)
{
    pair size;
    if (pair_read("bubble_formula", args, nargs, kwnames, &size) < 0)
        return NULL;
    const int64_t safe = INT64_C(1) << 62; /* the sum of two below it fits */
    int64_t p = size.value[0], m = size.value[1];
    PyObject *result = p != 0 && m != 0 && p < safe && m < safe ? quotient(p - 1, m + p - 1)
                                                                : formula_long(&size);
    pair_clear(&size);
    return result;
}

PyDoc_STRVAR(kernels_doc,
             "_table_kernels($module, name=None, /)\n"
             "--\n"
             "\n"
             "The names of the kernels of the exercise that this CPU runs, the one in "
             "use first; with a name, use that one from now on. For tests, which see "
             "to it that no other thread calls meanwhile.");

static PyObject *table_kernels(PyObject *module, PyObject *args)
{
    ps_py_state *state = ps_py_get_state(module);
    const char *name = NULL;
    if (!PyArg_ParseTuple(args, "|z", &name))
        return NULL;
    const ps_table_kernels *kernels;
    if (name != NULL) {
        int32_t index = 0;
        while ((kernels = ps_table_kernels_at(index)) != NULL &&
               strcmp(kernels->name, name) != 0)
            index++;
        if (kernels == NULL)
            return PyErr_Format(PyExc_ValueError, "no kernels named '%s' on this CPU", name);
        state->table_kernels = kernels;
    }
    PyObject *names = Py_BuildValue("[s]", state->table_kernels->name);
    if (names == NULL)
        return NULL;
    for (int32_t index = 0; (kernels = ps_table_kernels_at(index)) != NULL; index++) {
        if (kernels == state->table_kernels)
            continue;
        PyObject *text = PyUnicode_FromString(kernels->name);
        int failed = text == NULL || PyList_Append(names, text) < 0;
        Py_XDECREF(text);
        if (failed) {
            Py_DECREF(names);
            return NULL;
        }
    }
    return names;
}

/* METH_FASTCALL functions have another type than a PyMethodDef's; through
 * void (*)(void), as CPython's own _PyCFunction_CAST does. */
#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef table_methods[] = {
    {"gpipe_forward_schedule", FAST(gpipe_forward_schedule), METH_FASTCALL | METH_KEYWORDS,
     gpipe_forward_schedule_doc},
    {"bubble_fraction", FAST(bubble_fraction), METH_FASTCALL | METH_KEYWORDS,
     bubble_fraction_doc},
    {"bubble_formula", FAST(bubble_formula), METH_FASTCALL | METH_KEYWORDS, bubble_formula_doc},
    {"_table_kernels", table_kernels, METH_VARARGS, kernels_doc},
    {NULL, NULL, 0, NULL},
};

int ps_py_add_table(PyObject *module)
{
    ps_py_get_state(module)->table_kernels = ps_table_kernels_best();
    return PyModule_AddFunctions(module, table_methods);
}
