#include "py_args.h"

static Py_ssize_t find_name(const char *const *names, Py_ssize_t count, PyObject *name)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyUnicode_CompareWithASCIIString(name, names[i]) == 0)
            return i;
    return -1;
}

int ps_py_args(const char *function, const char *const *names, Py_ssize_t count,
               PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **out)
{
    if (nargs > count) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd positional argument%s but %zd were given",
                     function, count, count == 1 ? "" : "s", nargs);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        out[i] = i < nargs ? args[i] : NULL;
    Py_ssize_t named = kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t k = 0; k < named; k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        Py_ssize_t i = find_name(names, count, name);
        if (i < 0) {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
                         function, name);
            return -1;
        }
        if (out[i] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%s'",
                         function, names[i]);
            return -1;
        }
        out[i] = args[nargs + k];
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (out[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'", function,
                         names[i]);
            return -1;
        }
    }
    return 0;
}

PyObject *ps_py_index(const char *name, PyObject *argument)
{
    PyObject *number = PyNumber_Index(argument);
    if (number != NULL || !PyErr_ExceptionMatches(PyExc_TypeError))
        return number;
    PyErr_Clear(); /* it does not say which argument */
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(argument), "__name__");
    if (type != NULL)
        PyErr_Format(PyExc_TypeError, "%s must be an integer, got %U", name, type);
    Py_XDECREF(type);
    return NULL;
}

PyObject *ps_py_count(const char *name, PyObject *argument, int64_t *small)
{
    PyObject *number = ps_py_index(name, argument);
    if (number == NULL)
        return NULL;
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (value == -1 && PyErr_Occurred()) {
        Py_DECREF(number);
        return NULL;
    }
    if (overflow < 0) /* Python may refuse to print so long a number */
        PyErr_Format(PyExc_ValueError, "%s must be at least 1, got a number below -2**63",
                     name);
    else if (overflow == 0 && value < 1)
        PyErr_Format(PyExc_ValueError, "%s must be at least 1, got %lld", name, value);
    else {
        *small = overflow > 0 ? 0 : value;
        return number;
    }
    Py_DECREF(number);
    return NULL;
}
