/* Sends and receives for a schedule, and its table in unit time. */
#include "py_arrays.h"

#include "../ps_lower.h"

PyDoc_STRVAR(lower_doc,
             "lower($module, schedule, /)\n"
             "--\n"
             "\n"
             "(ops, offsets) of a legal schedule without sends and receives, with them.");

static PyObject *lower(PyObject *module, PyObject *object)
{
    ps_py_schedule schedule;
    if (ps_py_schedule_read(module, object, &schedule) < 0)
        return NULL;
    PyObject *result = NULL;
    PyArrayObject *ops = NULL;
    ps_index index;
    ps_fault fault;
    ps_status status;
    npy_intp num_offsets = (npy_intp)schedule.view.p + 1;
    PyArrayObject *offsets = (PyArrayObject *)PyArray_SimpleNew(1, &num_offsets, NPY_INT64);
    if (offsets == NULL) {
        ps_py_schedule_clear(&schedule);
        return NULL;
    }
    int64_t *begins = PyArray_DATA(offsets);
    Py_BEGIN_ALLOW_THREADS
    status = ps_index_init(&index, &schedule.view, &fault);
    if (status == PS_OK)
        status = ps_lower_offsets(&schedule.view, &index, begins);
    Py_END_ALLOW_THREADS
    if (status != PS_OK) {
        ps_py_raise(status);
        goto done;
    }
    ops = ps_py_new_ops(module, begins[schedule.view.p]);
    if (ops == NULL)
        goto done;
    ps_op *data = PyArray_DATA(ops);
    Py_BEGIN_ALLOW_THREADS
    status = ps_lower_fill(&schedule.view, &index, begins, data);
    Py_END_ALLOW_THREADS
    if (status != PS_OK)
        ps_py_raise(status);
    else
        result = Py_BuildValue("(OO)", ops, offsets);
done:
    ps_index_free(&index);
    Py_XDECREF(ops);
    Py_DECREF(offsets);
    ps_py_schedule_clear(&schedule);
    return result;
}

/* end of every op in unit time; *slots is the largest. */
static ps_status unit_ends(const ps_schedule *schedule, int64_t **end, int64_t *slots)
{
    static const int32_t weight[PS_NUM_COMPUTE_KINDS] = {1, 1, 1, 1};
    int64_t num_ops = schedule->offsets[schedule->p];
    ps_index index;
    ps_fault fault;
    ps_status status = ps_index_init(&index, schedule, &fault);
    if (status != PS_OK)
        return status;
    status = ps_alloc(num_ops, sizeof **end, (void **)end);
    if (status == PS_OK)
        status = ps_lower_ends(schedule, &index, weight, *end);
    *slots = 0;
    for (int64_t i = 0; status == PS_OK && i < num_ops; i++)
        *slots = (*end)[i] > *slots ? (*end)[i] : *slots;
    ps_index_free(&index);
    return status;
}

PyDoc_STRVAR(slot_table_doc, "slot_table($module, schedule, /)\n"
                             "--\n"
                             "\n"
                             "The table of a legal schedule without sends and receives in unit "
                             "time: (ranks, slots), -1 idle.");

static PyObject *slot_table(PyObject *module, PyObject *object)
{
    ps_py_schedule schedule;
    if (ps_py_schedule_read(module, object, &schedule) < 0)
        return NULL;
    PyObject *table = NULL;
    int64_t *end = NULL;
    int64_t slots;
    ps_status status;
    Py_BEGIN_ALLOW_THREADS
    status = unit_ends(&schedule.view, &end, &slots);
    Py_END_ALLOW_THREADS
    if (status != PS_OK) {
        ps_py_raise(status);
        goto done;
    }
    npy_intp shape[2] = {schedule.view.p, (npy_intp)slots};
    table = PyArray_SimpleNew(2, shape, NPY_INT64);
    if (table == NULL)
        goto done;
    int64_t *data = PyArray_DATA((PyArrayObject *)table);
    Py_BEGIN_ALLOW_THREADS
    ps_lower_table(&schedule.view, end, slots, data);
    Py_END_ALLOW_THREADS
done:
    free(end);
    ps_py_schedule_clear(&schedule);
    return table;
}

static PyMethodDef lower_methods[] = {
    {"lower", lower, METH_O, lower_doc},
    {"slot_table", slot_table, METH_O, slot_table_doc},
    {NULL, NULL, 0, NULL},
};

int ps_py_add_lower(PyObject *module)
{
    return PyModule_AddFunctions(module, lower_methods);
}
