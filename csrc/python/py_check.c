/* Checking a schedule. */
#include "py_arrays.h"

#include "../ps_check.h"

static PyObject *cycle_tuple(const ps_wait *cycle, int32_t length)
{
    PyObject *waits = PyTuple_New(length);
    for (int32_t i = 0; waits != NULL && i < length; i++) {
        PyObject *wait = Py_BuildValue(
            "(iLNLN)", (int)cycle[i].rank, (long long)cycle[i].position, ps_py_op(cycle[i].op),
            (long long)cycle[i].awaited_position, ps_py_op(cycle[i].awaited));
        if (wait == NULL)
            Py_CLEAR(waits);
        else
            PyTuple_SET_ITEM(waits, i, wait);
    }
    return waits;
}

PyDoc_STRVAR(check_doc,
             "check($module, schedule, blocking, /)\n"
             "--\n"
             "\n"
             "None where the schedule is legal, else its fault: (status, rank, position, op, "
             "other_rank, other_position, other, cycle), an op as (stage, microbatch, kind, "
             "fuse), the cycle of (rank, position, op, awaited_position, awaited).");

static PyObject *check(PyObject *module, PyObject *args)
{
    PyObject *object;
    int blocking;
    if (!PyArg_ParseTuple(args, "Op:check", &object, &blocking))
        return NULL;
    ps_py_schedule schedule;
    if (ps_py_schedule_read(module, object, &schedule) < 0)
        return NULL;
    PyObject *result = NULL;
    ps_fault fault;
    int32_t cycle_length = 0;
    ps_wait *cycle;
    ps_status status = ps_alloc(schedule.view.p, sizeof *cycle, (void **)&cycle);
    if (status != PS_OK) {
        ps_py_raise(status);
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    status = ps_check(&schedule.view, blocking, &fault, cycle, &cycle_length);
    Py_END_ALLOW_THREADS
    if (status == PS_OK)
        result = Py_NewRef(Py_None);
    else if (status > PS_ERR_OP_RANGE)
        ps_py_raise(status);
    else {
        PyObject *where = ps_py_fault(status, &fault);
        PyObject *waits = Py_BuildValue("(N)", cycle_tuple(cycle, cycle_length));
        if (where != NULL && waits != NULL)
            result = PySequence_Concat(where, waits);
        Py_XDECREF(where);
        Py_XDECREF(waits);
    }
    free(cycle);
done:
    ps_py_schedule_clear(&schedule);
    return result;
}

/* What check_form and check_unique share: the form, then something more. */
static PyObject *check_with(PyObject *module, PyObject *object,
                            ps_status (*more)(const ps_schedule *, ps_fault *))
{
    ps_py_schedule schedule;
    if (ps_py_schedule_read(module, object, &schedule) < 0)
        return NULL;
    ps_fault fault;
    uint32_t kinds;
    ps_status status;
    Py_BEGIN_ALLOW_THREADS
    status = ps_schedule_scan(&schedule.view, &kinds, &fault);
    if (status == PS_OK && more != NULL)
        status = more(&schedule.view, &fault);
    Py_END_ALLOW_THREADS
    ps_py_schedule_clear(&schedule);
    if (status == PS_OK)
        Py_RETURN_NONE;
    return status > PS_ERR_OP_RANGE ? ps_py_raise(status) : ps_py_fault(status, &fault);
}

PyDoc_STRVAR(check_form_doc,
             "check_form($module, schedule, /)\n"
             "--\n"
             "\n"
             "None where every op is in range and every overlapped pair has two members, "
             "else the fault as check gives it, without a cycle.");

static PyObject *check_form(PyObject *module, PyObject *object)
{
    return check_with(module, object, NULL);
}

PyDoc_STRVAR(check_unique_doc,
             "check_unique($module, schedule, /)\n"
             "--\n"
             "\n"
             "None where no op stands twice, else the fault as check gives it, without a "
             "cycle.");

static PyObject *check_unique(PyObject *module, PyObject *object)
{
    return check_with(module, object, ps_schedule_unique);
}

static PyMethodDef check_methods[] = {
    {"check_unique", check_unique, METH_O, check_unique_doc},
    {"check_form", check_form, METH_O, check_form_doc},
    {"check", check, METH_VARARGS, check_doc},
    {NULL, NULL, 0, NULL},
};

int ps_py_add_check(PyObject *module)
{
    return PyModule_AddFunctions(module, check_methods);
}
