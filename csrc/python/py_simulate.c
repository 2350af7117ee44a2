/* Costs -> times. simulate gives every op's end, simulate_batch the sums of many cost
 * vectors, look_back every op's start and what fixed it. All arrays come from the package's
 * own Python (Schedule, Costs.tables), which owns them while the GIL is away. */
#include "py_arrays.h"

#include "../ps_simulate.h"

/* A C-contiguous array of doubles (or None, if that may be) with these axes. The
 * pointer is borrowed. */
static int doubles(PyObject *object, const char *name, int may_be_none, int ndim,
                   const npy_intp *shape, double **out)
{
    *out = NULL;
    if (may_be_none && object == Py_None)
        return 0;
    PyArrayObject *array = (PyArrayObject *)object;
    int fits = PyArray_Check(object) && PyArray_TYPE(array) == NPY_DOUBLE &&
               PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISALIGNED(array) &&
               PyArray_ISNOTSWAPPED(array) && PyArray_NDIM(array) == ndim;
    for (int i = 0; fits && i < ndim; i++)
        fits = PyArray_DIM(array, i) == shape[i];
    if (!fits) {
        PyErr_Format(PyExc_ValueError,
                     "%s must be a contiguous float64 array with %d axes that fit", name, ndim);
        return -1;
    }
    *out = PyArray_DATA(array);
    return 0;
}

/* (times, overlap, transfers, scale, memory), with a first axis of batch cost
 * vectors where batch is not negative; *out is the first. */
static int costs_view(PyObject *tables, int serial, const ps_schedule *schedule, npy_intp batch,
                      ps_costs *out)
{
    if (!PyTuple_Check(tables) || PyTuple_GET_SIZE(tables) != 5) {
        PyErr_SetString(PyExc_TypeError, "costs must be a tuple of five tables");
        return -1;
    }
    npy_intp S = schedule->num_stages;
    npy_intp m = schedule->num_microbatches;
    const npy_intp shapes[5][3] = {
        {batch, 4, S}, {batch, S, 0}, {batch, 2, S}, {batch, m, 0}, {batch, 3, S}};
    static const char *const names[5] = {"times", "overlap", "transfers", "scale", "memory"};
    double *data[5];
    for (int i = 0; i < 5; i++) {
        int one_axis = i == 1 || i == 3;
        int ndim = one_axis ? 2 : 3;
        const npy_intp *shape = shapes[i];
        if (batch < 0) {
            ndim--;
            shape++;
        }
        if (doubles(PyTuple_GET_ITEM(tables, i), names[i], one_axis, ndim, shape, &data[i]) < 0)
            return -1;
    }
    *out = (ps_costs){.times = data[0],
                      .overlap = data[1],
                      .transfers = data[2],
                      .scale = data[3],
                      .memory = data[4],
                      .serial = serial};
    return 0;
}

/* Cost vector k of a batch. */
static ps_costs costs_at(const ps_costs *first, const ps_schedule *schedule, int64_t k)
{
    int64_t S = schedule->num_stages;
    ps_costs costs = *first;
    costs.times += k * 4 * S;
    costs.transfers += k * 2 * S;
    costs.memory += k * 3 * S;
    if (costs.overlap != NULL)
        costs.overlap += k * S;
    if (costs.scale != NULL)
        costs.scale += k * schedule->num_microbatches;
    return costs;
}

static void raise_status(ps_status status)
{
    if (status == PS_ERR_OVERFLOW)
        PyErr_SetString(PyExc_OverflowError,
                        "the times or bytes of this schedule leave the range of a 64-bit "
                        "float: the costs are too large");
    else
        ps_py_raise(status);
}

/* Where the sums of one cost vector go, within the planes of (SUMS, batch, p). */
enum { SUMS = 5 };

static ps_times times_at(double *sums, int64_t batch, int64_t p, int64_t k, int64_t *chunks)
{
    int64_t plane = batch * p;
    double *row = sums + k * p;
    return (ps_times){.busy = row,
                      .first = row + plane,
                      .last = row + 2 * plane,
                      .fixed = row + 3 * plane,
                      .peak_memory = row + 4 * plane,
                      .peak_activations = chunks};
}

PyDoc_STRVAR(simulate_doc,
             "simulate($module, schedule, tables, serial, /)\n"
             "--\n"
             "\n"
             "(end, sums, peak_activations) of a schedule under the costs of Costs.tables: the "
             "ends of the ops; busy, first, last, fixed and peak_memory of the ranks, (5, p).");

static PyObject *simulate(PyObject *module, PyObject *args)
{
    PyObject *object, *tables;
    int serial;
    if (!PyArg_ParseTuple(args, "OOp:simulate", &object, &tables, &serial))
        return NULL;
    ps_py_schedule schedule;
    if (ps_py_schedule_read(module, object, &schedule) < 0)
        return NULL;
    PyObject *result = NULL;
    ps_costs costs;
    if (costs_view(tables, serial, &schedule.view, -1, &costs) < 0)
        goto done;
    npy_intp ops = PyArray_DIM(schedule.ops, 0);
    npy_intp p = schedule.view.p;
    const npy_intp sums_shape[2] = {SUMS, p};
    PyObject *end = PyArray_SimpleNew(1, &ops, NPY_DOUBLE);
    PyObject *sums = PyArray_SimpleNew(2, sums_shape, NPY_DOUBLE);
    PyObject *chunks = PyArray_SimpleNew(1, &p, NPY_INT64);
    if (end != NULL && sums != NULL && chunks != NULL)
        result = PyTuple_Pack(3, end, sums, chunks);
    Py_XDECREF(end);
    Py_XDECREF(sums);
    Py_XDECREF(chunks);
    if (result == NULL)
        goto done;
    ps_times times = times_at(PyArray_DATA((PyArrayObject *)sums), 1, p, 0,
                              PyArray_DATA((PyArrayObject *)chunks));
    times.end = PyArray_DATA((PyArrayObject *)end);
    ps_simulator *sim = NULL;
    ps_status status;
    Py_BEGIN_ALLOW_THREADS
    status = ps_simulator_new(&schedule.view, &sim);
    if (status == PS_OK)
        status = ps_simulator_run(sim, &costs, &times);
    ps_simulator_free(sim);
    Py_END_ALLOW_THREADS
    if (status != PS_OK) {
        Py_CLEAR(result);
        raise_status(status);
    }
done:
    ps_py_schedule_clear(&schedule);
    return result;
}

PyDoc_STRVAR(
    simulate_batch_doc,
    "simulate_batch($module, schedule, tables, serial, begin, stop, sums, /)\n"
    "--\n"
    "\n"
    "Fill sums[:, begin:stop] of a (5, K, p) array under those cost vectors of a batch. "
    "Returns peak_activations, which no cost changes.");

static PyObject *simulate_batch(PyObject *module, PyObject *args)
{
    PyObject *object, *tables, *sums;
    int serial;
    Py_ssize_t begin, stop;
    if (!PyArg_ParseTuple(args, "OOpnnO:simulate_batch", &object, &tables, &serial, &begin,
                          &stop, &sums))
        return NULL;
    ps_py_schedule schedule;
    if (ps_py_schedule_read(module, object, &schedule) < 0)
        return NULL;
    PyObject *chunks = NULL;
    npy_intp p = schedule.view.p;
    npy_intp batch = 0;
    if (PyArray_Check(sums) && PyArray_NDIM((PyArrayObject *)sums) == 3)
        batch = PyArray_DIM((PyArrayObject *)sums, 1);
    if (begin < 0 || stop < begin || stop > batch) {
        PyErr_Format(PyExc_ValueError, "rows %zd..%zd of a batch of %zd", begin, stop,
                     (Py_ssize_t)batch);
        goto done;
    }
    ps_costs costs;
    double *sums_data;
    const npy_intp shape[3] = {SUMS, batch, p};
    if (costs_view(tables, serial, &schedule.view, batch, &costs) < 0 ||
        doubles(sums, "sums", 0, 3, shape, &sums_data) < 0 ||
        PyArray_FailUnlessWriteable((PyArrayObject *)sums, "sums") < 0)
        goto done;
    chunks = PyArray_ZEROS(1, &p, NPY_INT64, 0);
    if (chunks == NULL)
        goto done;
    int64_t *chunks_data = PyArray_DATA((PyArrayObject *)chunks);
    ps_simulator *sim = NULL;
    ps_status status;
    Py_BEGIN_ALLOW_THREADS
    status = ps_simulator_new(&schedule.view, &sim);
    for (int64_t k = begin; k < stop && status == PS_OK; k++) {
        ps_costs one = costs_at(&costs, &schedule.view, k);
        ps_times times = times_at(sums_data, batch, p, k, chunks_data);
        status = ps_simulator_run(sim, &one, &times);
    }
    ps_simulator_free(sim);
    Py_END_ALLOW_THREADS
    if (status != PS_OK) {
        Py_CLEAR(chunks);
        raise_status(status);
    }
done:
    ps_py_schedule_clear(&schedule);
    return chunks;
}

PyDoc_STRVAR(look_back_doc,
             "look_back($module, schedule, tables, serial, end, cause, /)\n"
             "--\n"
             "\n"
             "From the ends of simulate: the start of each op, or, where cause is true, the "
             "index of the op that fixed its start, -1 for none.");

static PyObject *look_back(PyObject *module, PyObject *args)
{
    PyObject *object, *tables, *end_array;
    int serial, cause;
    if (!PyArg_ParseTuple(args, "OOpOp:look_back", &object, &tables, &serial, &end_array,
                          &cause))
        return NULL;
    ps_py_schedule schedule;
    if (ps_py_schedule_read(module, object, &schedule) < 0)
        return NULL;
    PyObject *result = NULL;
    ps_costs costs;
    double *end;
    const npy_intp ops = PyArray_DIM(schedule.ops, 0);
    if (costs_view(tables, serial, &schedule.view, -1, &costs) < 0 ||
        doubles(end_array, "end", 0, 1, &ops, &end) < 0)
        goto done;
    result = PyArray_SimpleNew(1, &ops, cause ? NPY_INT64 : NPY_DOUBLE);
    if (result == NULL)
        goto done;
    void *data = PyArray_DATA((PyArrayObject *)result);
    ps_simulator *sim = NULL;
    ps_status status;
    Py_BEGIN_ALLOW_THREADS
    status = ps_simulator_new(&schedule.view, &sim);
    if (status == PS_OK)
        status =
            ps_simulator_look_back(sim, &costs, end, cause ? NULL : data, cause ? data : NULL);
    ps_simulator_free(sim);
    Py_END_ALLOW_THREADS
    if (status != PS_OK) {
        Py_CLEAR(result);
        raise_status(status);
    }
done:
    ps_py_schedule_clear(&schedule);
    return result;
}

static PyMethodDef simulate_methods[] = {
    {"simulate", simulate, METH_VARARGS, simulate_doc},
    {"simulate_batch", simulate_batch, METH_VARARGS, simulate_batch_doc},
    {"look_back", look_back, METH_VARARGS, look_back_doc},
    {NULL, NULL, 0, NULL},
};

int ps_py_add_simulate(PyObject *module)
{
    return PyModule_AddFunctions(module, simulate_methods);
}
