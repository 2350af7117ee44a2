/* Torch's action words. */
#include "py_arrays.h"

#include "../ps_words.h"

PyDoc_STRVAR(parse_words_doc,
             "parse_words($module, text, /)\n"
             "--\n"
             "\n"
             "(ops, offsets) of a text in bytes; an op of the old kind BW has the number "
             "after the last kind. Where a cell is not a word: (row, column, cell in bytes, "
             "whether only a number in it is too large).");

static PyObject *parse_words(PyObject *module, PyObject *object)
{
    if (!PyBytes_Check(object))
        return PyErr_Format(PyExc_TypeError, "text must be bytes, got %s",
                            Py_TYPE(object)->tp_name);
    const char *text = PyBytes_AS_STRING(object); /* bytes do not change, GIL or not */
    int64_t length = PyBytes_GET_SIZE(object);
    int64_t num_rows;
    int64_t num_ops;
    ps_words_fault fault;
    ps_status status;
    Py_BEGIN_ALLOW_THREADS
    status = ps_words_count(text, length, &num_rows, &num_ops, &fault);
    Py_END_ALLOW_THREADS
    if (status != PS_OK)
        return Py_BuildValue("(LLy#N)", (long long)fault.row, (long long)fault.column,
                             fault.text, (Py_ssize_t)fault.length,
                             PyBool_FromLong(fault.too_large));
    npy_intp count = (npy_intp)num_rows + 1;
    PyArrayObject *offsets = (PyArrayObject *)PyArray_SimpleNew(1, &count, NPY_INT64);
    PyArrayObject *ops = ps_py_new_ops(module, num_ops);
    if (offsets == NULL || ops == NULL) {
        Py_XDECREF(offsets);
        Py_XDECREF(ops);
        return NULL;
    }
    int64_t *offsets_data = PyArray_DATA(offsets);
    ps_op *ops_data = PyArray_DATA(ops);
    Py_BEGIN_ALLOW_THREADS
    ps_words_read(text, length, offsets_data, ops_data);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("(NN)", ops, offsets);
}

PyDoc_STRVAR(format_words_doc, "format_words($module, schedule, /)\n"
                               "--\n"
                               "\n"
                               "The schedule as text in bytes: words between commas, each "
                               "rank's row ended by a newline.");

static PyObject *format_words(PyObject *module, PyObject *object)
{
    ps_py_schedule schedule;
    if (ps_py_schedule_read(module, object, &schedule) < 0)
        return NULL;
    PyObject *text = NULL;
    int64_t length = 0;
    uint32_t kinds;
    ps_fault fault;
    ps_status status;
    Py_BEGIN_ALLOW_THREADS
    status = ps_schedule_scan(&schedule.view, &kinds, &fault);
    if (status == PS_OK)
        length = ps_words_length(&schedule.view);
    Py_END_ALLOW_THREADS
    if (status != PS_OK) {
        ps_py_raise(status);
        goto done;
    }
    text = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (text == NULL)
        goto done;
    char *data = PyBytes_AS_STRING(text);
    Py_BEGIN_ALLOW_THREADS
    ps_words_write(&schedule.view, data);
    Py_END_ALLOW_THREADS
done:
    ps_py_schedule_clear(&schedule);
    return text;
}

static PyMethodDef words_methods[] = {
    {"parse_words", parse_words, METH_O, parse_words_doc},
    {"format_words", format_words, METH_O, format_words_doc},
    {NULL, NULL, 0, NULL},
};

int ps_py_add_words(PyObject *module)
{
    return PyModule_AddFunctions(module, words_methods);
}
