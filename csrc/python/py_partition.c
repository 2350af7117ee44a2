/* Balanced cuts and plans: arrays in, arrays out. Arguments were checked in Python;
 * what could break the core is checked again in it. */
#include "py_common.h"

#include "../ps_partition.h"

/* A private copy of a 1-D argument, so that no thread can change it under the core. */
static PyArrayObject *copy_of(PyObject *argument, int type)
{
    return (PyArrayObject *)PyArray_FROMANY(argument, type, 1, 1,
                                            NPY_ARRAY_CARRAY | NPY_ARRAY_ENSURECOPY);
}

/* The GIL was let go; take it for a moment to see whether somebody pressed Ctrl-C. */
static int ask_signals(void *context)
{
    PyThreadState **thread = context;
    PyEval_RestoreThread(*thread);
    int stop = PyErr_CheckSignals();
    *thread = PyEval_SaveThread();
    return stop;
}

PyDoc_STRVAR(balance_doc,
             "balance($module, costs, k, chunks, first, last, cut_bytes, /)\n--\n\n"
             "(cuts, largest, bound) of the balanced partition; cut_bytes may be None.");

static PyObject *balance(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *costs_object, *bytes_object;
    long long k, chunks;
    double first, last;
    if (!PyArg_ParseTuple(args, "OLLddO:balance", &costs_object, &k, &chunks, &first, &last,
                          &bytes_object))
        return NULL;
    PyArrayObject *costs = NULL, *bytes = NULL, *cuts = NULL;
    PyObject *result = NULL;
    int64_t parts = 0;
    ps_status status = k < 1 || chunks < 1 ? PS_ERR_TOO_SMALL : ps_mul(k, chunks, &parts);
    costs = copy_of(costs_object, NPY_DOUBLE);
    if (costs == NULL)
        return NULL;
    int64_t n = PyArray_SIZE(costs);
    if (bytes_object != Py_None) {
        bytes = copy_of(bytes_object, NPY_DOUBLE);
        if (bytes == NULL)
            goto done;
        if (PyArray_SIZE(bytes) != n) {
            PyErr_SetString(PyExc_ValueError, "cut_bytes must have one value for each layer");
            goto done;
        }
    }
    if (status == PS_OK && parts > n)
        status = PS_ERR_TOO_LARGE;
    if (status != PS_OK) {
        ps_py_raise(status);
        goto done;
    }
    npy_intp num_cuts = (npy_intp)parts + 1;
    cuts = (PyArrayObject *)PyArray_SimpleNew(1, &num_cuts, NPY_INT64);
    if (cuts == NULL)
        goto done;
    const double *cost = PyArray_DATA(costs);
    const double *byte = bytes != NULL ? PyArray_DATA(bytes) : NULL;
    int64_t *cut = PyArray_DATA(cuts);
    double largest = 0.0, bound = 0.0;
    Py_BEGIN_ALLOW_THREADS
    if (chunks == 1) {
        status = ps_balance(cost, n, k, first, last, byte, cut, &largest);
        bound = largest;
    } else {
        status = ps_balance_chunks(cost, n, k, chunks, first, last, cut, &largest, &bound);
    }
    Py_END_ALLOW_THREADS
    if (status != PS_OK)
        ps_py_raise(status);
    else
        result = Py_BuildValue("(Odd)", cuts, largest, bound);
done:
    Py_XDECREF(cuts);
    Py_XDECREF(bytes);
    Py_DECREF(costs);
    return result;
}

/* ---- plans ----------------------------------------------------------------------------- */

/* The arrays of a graph of layers and of a cluster, all private copies. */
typedef struct problem {
    PyArrayObject *compute, *activation, *parameters, *edges, *counts, *bandwidth;
    PyArrayObject *stage_of_layer, *stage_of_rank; /* out */
    ps_layers layers;
    ps_cluster cluster;
    ps_cut cut;
} problem;

static void free_problem(problem *x)
{
    Py_XDECREF(x->compute);
    Py_XDECREF(x->activation);
    Py_XDECREF(x->parameters);
    Py_XDECREF(x->edges);
    Py_XDECREF(x->counts);
    Py_XDECREF(x->bandwidth);
    Py_XDECREF(x->stage_of_layer);
    Py_XDECREF(x->stage_of_rank);
}

/* arguments: compute, activation, parameters, edges (flat), counts, bandwidth. */
static int make_problem(PyObject *const *arguments, problem *x)
{
    PyArrayObject **arrays[] = {&x->compute, &x->activation, &x->parameters,
                                &x->edges,   &x->counts,     &x->bandwidth};
    static const int types[] = {NPY_DOUBLE, NPY_DOUBLE, NPY_DOUBLE,
                                NPY_INT32,  NPY_INT32,  NPY_DOUBLE};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        *arrays[i] = copy_of(arguments[i], types[i]);
        if (*arrays[i] == NULL)
            return -1;
    }
    npy_intp n = PyArray_SIZE(x->compute);
    npy_intp levels = PyArray_SIZE(x->counts);
    if (n > INT32_MAX || levels > PS_MAX_LEVELS || PyArray_SIZE(x->activation) != n ||
        PyArray_SIZE(x->parameters) != n || PyArray_SIZE(x->edges) % 2 != 0 ||
        PyArray_SIZE(x->bandwidth) != levels) {
        PyErr_SetString(PyExc_ValueError, "the arrays of the partition do not fit together");
        return -1;
    }
    x->layers = (ps_layers){(int32_t)n,
                            PyArray_SIZE(x->edges) / 2,
                            PyArray_DATA(x->edges),
                            PyArray_DATA(x->compute),
                            PyArray_DATA(x->activation),
                            PyArray_DATA(x->parameters)};
    x->cluster =
        (ps_cluster){(int32_t)levels, PyArray_DATA(x->counts), PyArray_DATA(x->bandwidth)};
    int64_t ranks = 1;
    for (npy_intp i = 0; i < levels; i++) {
        ps_status status = x->cluster.counts[i] < 1
                               ? PS_ERR_TOO_SMALL
                               : ps_mul(ranks, x->cluster.counts[i], &ranks);
        if (status != PS_OK) {
            ps_py_raise(status);
            return -1;
        }
    }
    npy_intp num_ranks = (npy_intp)ranks;
    x->stage_of_layer = (PyArrayObject *)PyArray_SimpleNew(1, &n, NPY_INT32);
    x->stage_of_rank = (PyArrayObject *)PyArray_SimpleNew(1, &num_ranks, NPY_INT32);
    if (x->stage_of_layer == NULL || x->stage_of_rank == NULL)
        return -1;
    x->cut.stage_of_layer = PyArray_DATA(x->stage_of_layer);
    x->cut.stage_of_rank = PyArray_DATA(x->stage_of_rank);
    return 0;
}

/* The answer, or a word for what is no error of the arguments. */
static PyObject *answer(const problem *x, ps_status status)
{
    if (status == PS_ERR_INTERRUPTED)
        return NULL; /* the signal's handler has raised */
    if (status == PS_ERR_INFEASIBLE)
        return PyUnicode_FromString("infeasible");
    if (status == PS_ERR_RULE)
        return PyUnicode_FromString("missing value");
    if (status == PS_ERR_TOO_LARGE)
        return PyUnicode_FromString("too many states");
    if (status != PS_OK)
        return ps_py_raise(status);
    return Py_BuildValue("(OOiiid)", x->stage_of_layer, x->stage_of_rank,
                         (int)x->cut.num_stages, (int)x->cut.num_states, (int)x->cut.exact,
                         x->cut.objective);
}

PyDoc_STRVAR(
    compat_doc,
    "partition_compat($module, compute, activation, parameters, edges, counts, bandwidth, "
    "straight, fewer, memory, compressed, limit, /)\n--\n\n"
    "(stage_of_layer, stage_of_rank, num_stages, num_states, exact, objective) of "
    "PipeDream's published program, or a word: 'infeasible', 'missing value', 'too "
    "many states'.");

static PyObject *partition_compat(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *arrays[6];
    ps_compat options;
    int limit;
    if (!PyArg_ParseTuple(args, "OOOOOOppddi:partition_compat", &arrays[0], &arrays[1],
                          &arrays[2], &arrays[3], &arrays[4], &arrays[5], &options.straight,
                          &options.fewer, &options.memory, &options.compressed, &limit))
        return NULL;
    problem x = {0};
    PyObject *result = NULL;
    if (make_problem(arrays, &x) == 0) {
        PyThreadState *thread = PyEval_SaveThread();
        ps_poll poll = {ask_signals, &thread};
        ps_status status =
            ps_compat_partition(&x.layers, &x.cluster, &options, limit, &poll, &x.cut);
        PyEval_RestoreThread(thread);
        result = answer(&x, status);
    }
    free_problem(&x);
    return result;
}

PyDoc_STRVAR(plan_doc,
             "partition_plan($module, compute, activation, parameters, edges, counts, "
             "bandwidth, overlap, "
             "minimise_memory, max_replicas, num_stages, limit, memory, optimizer, /)\n--\n\n"
             "The same of the default model.");

static PyObject *partition_plan(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *arrays[6];
    ps_plan_options options;
    int max_replicas, num_stages, limit;
    if (!PyArg_ParseTuple(args, "OOOOOOppiiidd:partition_plan", &arrays[0], &arrays[1],
                          &arrays[2], &arrays[3], &arrays[4], &arrays[5], &options.overlap,
                          &options.minimise_memory, &max_replicas, &num_stages, &limit,
                          &options.memory, &options.optimizer))
        return NULL;
    options.max_replicas = max_replicas;
    options.num_stages = num_stages;
    options.limit = limit;
    problem x = {0};
    PyObject *result = NULL;
    if (make_problem(arrays, &x) == 0) {
        PyThreadState *thread = PyEval_SaveThread();
        ps_poll poll = {ask_signals, &thread};
        ps_status status = ps_plan(&x.layers, &x.cluster, &options, &poll, &x.cut);
        PyEval_RestoreThread(thread);
        result = answer(&x, status);
    }
    free_problem(&x);
    return result;
}

static PyMethodDef partition_methods[] = {
    {"balance", balance, METH_VARARGS, balance_doc},
    {"partition_compat", partition_compat, METH_VARARGS, compat_doc},
    {"partition_plan", partition_plan, METH_VARARGS, plan_doc},
    {NULL, NULL, 0, NULL},
};

int ps_py_add_partition(PyObject *module)
{
    return PyModule_AddFunctions(module, partition_methods);
}
