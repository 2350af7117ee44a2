#include "py_arrays.h"

/* obj.name as an array with the layout that the core reads (new reference). */
static PyArrayObject *get_array(PyObject *obj, const char *name, PyArray_Descr *dtype)
{
    PyObject *value = PyObject_GetAttrString(obj, name);
    if (value == NULL)
        return NULL;
    if (PyArray_Check(value)) {
        PyArrayObject *array = (PyArrayObject *)value;
        int flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
        if (PyArray_NDIM(array) == 1 && PyArray_CHKFLAGS(array, flags) &&
            !PyArray_ISWRITEABLE(array) && PyArray_EquivTypes(PyArray_DESCR(array), dtype))
            return array;
    }
    PyErr_Format(PyExc_TypeError,
                 "schedule.%s must be a read-only contiguous 1-D array of %S, got %s", name,
                 dtype, Py_TYPE(value)->tp_name);
    Py_DECREF(value);
    return NULL;
}

static int get_count(PyObject *obj, const char *name, int32_t *out)
{
    PyObject *value = PyObject_GetAttrString(obj, name);
    if (value == NULL)
        return -1;
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    Py_DECREF(value);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (overflow != 0 || number < 1 || number > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "schedule.%s must be in 1..%d", name, (int)INT32_MAX);
        return -1;
    }
    *out = (int32_t)number;
    return 0;
}

static int offsets_in_order(const int64_t *offsets, npy_intp count, npy_intp num_ops)
{
    if (count < 2 || count > INT32_MAX || offsets[0] != 0 || offsets[count - 1] != num_ops)
        return 0;
    for (npy_intp i = 1; i < count; i++)
        if (offsets[i] < offsets[i - 1])
            return 0;
    return 1;
}

int ps_py_schedule_read(PyObject *module, PyObject *schedule, ps_py_schedule *out)
{
    *out = (ps_py_schedule){{NULL, NULL, 0, 0, 0}, NULL, NULL};
    out->ops = get_array(schedule, "ops", ps_py_get_state(module)->op_dtype);
    if (out->ops == NULL)
        goto failed;
    PyArray_Descr *int64_dtype = PyArray_DescrFromType(NPY_INT64);
    out->offsets = get_array(schedule, "offsets", int64_dtype);
    Py_DECREF(int64_dtype);
    if (out->offsets == NULL)
        goto failed;
    if (get_count(schedule, "num_stages", &out->view.num_stages) < 0 ||
        get_count(schedule, "num_microbatches", &out->view.num_microbatches) < 0)
        goto failed;
    out->view.ops = PyArray_DATA(out->ops);
    out->view.offsets = PyArray_DATA(out->offsets);
    if (!offsets_in_order(out->view.offsets, PyArray_DIM(out->offsets, 0),
                          PyArray_DIM(out->ops, 0))) {
        PyErr_SetString(PyExc_ValueError, "schedule.offsets must rise from 0 to the number of "
                                          "ops, with one entry more than there are ranks");
        goto failed;
    }
    out->view.p = (int32_t)(PyArray_DIM(out->offsets, 0) - 1);
    return 0;
failed:
    ps_py_schedule_clear(out);
    return -1;
}

void ps_py_schedule_clear(ps_py_schedule *self)
{
    Py_CLEAR(self->ops);
    Py_CLEAR(self->offsets);
}

PyArrayObject *ps_py_new_ops(PyObject *module, int64_t count)
{
    npy_intp length = (npy_intp)count;
    PyArray_Descr *dtype = ps_py_get_state(module)->op_dtype;
    Py_INCREF(dtype); /* stolen by the next line */
    return (PyArrayObject *)PyArray_SimpleNewFromDescr(1, &length, dtype);
}

PyObject *ps_py_op(ps_op op)
{
    return Py_BuildValue("(iiii)", (int)op.stage, (int)op.microbatch, (int)op.kind,
                         (int)op.fuse);
}

PyObject *ps_py_fault(ps_status status, const ps_fault *fault)
{
    return Py_BuildValue("(iiLNiLN)", (int)status, (int)fault->rank, (long long)fault->position,
                         ps_py_op(fault->op), (int)fault->other_rank,
                         (long long)fault->other_position, ps_py_op(fault->other));
}
