/* Making schedules: the registry's records, and the arrays of one schedule. */
#include "py_args.h"
#include "py_arrays.h"

#include "../ps_generate.h"

/* One option as (name, preset or None, minimum, words or None, text). */
static PyObject *option_record(const ps_option *option)
{
    PyObject *words = NULL;
    PyObject *preset = NULL;
    PyObject *record = NULL;
    if (option->words == NULL) {
        words = Py_NewRef(Py_None);
    } else {
        words = PyList_New(0);
        for (int i = 0; words != NULL && option->words[i] != NULL; i++) {
            PyObject *word = PyUnicode_FromString(option->words[i]);
            if (word == NULL || PyList_Append(words, word) < 0)
                Py_CLEAR(words);
            Py_XDECREF(word);
        }
    }
    preset = option->preset == PS_AUTO ? Py_NewRef(Py_None) : PyLong_FromLong(option->preset);
    if (words != NULL && preset != NULL)
        record = Py_BuildValue("(sOiOs)", option->name, preset, (int)option->minimum, words,
                               option->text);
    Py_XDECREF(words);
    Py_XDECREF(preset);
    return record;
}

static PyObject *family_record(const ps_family *family)
{
    PyObject *options = PyTuple_New(family->num_options);
    for (int32_t i = 0; options != NULL && i < family->num_options; i++) {
        PyObject *option = option_record(&family->options[i]);
        if (option == NULL)
            Py_CLEAR(options);
        else
            PyTuple_SET_ITEM(options, i, option);
    }
    if (options == NULL)
        return NULL;
    return Py_BuildValue("(ssssssN)", family->name, family->title, family->summary,
                         family->constraints, family->placement, family->source, options);
}

PyDoc_STRVAR(families_doc, "families()\n--\n\n"
                           "Every family's record: (name, title, summary, constraints, "
                           "placement, source, options).");

static PyObject *families(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    int32_t count = ps_family_count();
    PyObject *records = PyTuple_New(count);
    for (int32_t i = 0; records != NULL && i < count; i++) {
        PyObject *record = family_record(ps_family_at(i));
        if (record == NULL)
            Py_CLEAR(records);
        else
            PyTuple_SET_ITEM(records, i, record);
    }
    return records;
}

/* A whole number that fits the ids of the core. */
static int int32_argument(PyObject *argument, const char *name, int32_t *out)
{
    PyObject *number = ps_py_index(name, argument);
    if (number == NULL)
        return -1;
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (overflow > 0 || value > INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%s must be at most %d, got a larger number", name,
                     (int)INT32_MAX);
        return -1;
    }
    /* INT32_MIN itself means "choose for me" in the core. */
    if (overflow < 0 || value <= INT32_MIN) {
        PyErr_Format(PyExc_ValueError, "%s must be at least 1, got a number below -2**31 + 1",
                     name);
        return -1;
    }
    *out = (int32_t)value;
    return 0;
}

static PyObject *raise_size(ps_status status, const ps_config *config)
{
    if (status != PS_ERR_OVERFLOW)
        return ps_py_raise(status);
    return PyErr_Format(PyExc_OverflowError,
                        "a schedule of p=%d and m=%d with these options cannot be addressed",
                        (int)config->p, (int)config->m);
}

/* One sentence out of a rule fault. */
static PyObject *rule_text(const ps_family *family, const ps_rule_fault *fault)
{
    int has_nearest = fault->nearest >= 0 && fault->nearest <= INT32_MAX;
    PyObject *nearest = PyUnicode_FromString("");
    if (has_nearest && nearest != NULL)
        Py_SETREF(nearest, PyUnicode_FromFormat("; %s=%lld works", fault->argument,
                                                (long long)fault->nearest));
    if (nearest == NULL)
        return NULL;
    PyObject *text =
        PyUnicode_FromFormat("%s: %s, got %s=%lld%U%s%s", family->name, fault->rule,
                             fault->argument, (long long)fault->value, nearest,
                             fault->instead == NULL ? ""
                             : has_nearest          ? ", or "
                                                    : "; ",
                             fault->instead == NULL ? "" : fault->instead);
    Py_DECREF(nearest);
    return text;
}

static PyObject *raise_rule(const ps_family *family, ps_status status,
                            const ps_rule_fault *fault)
{
    if (status != PS_ERR_TOO_SMALL && status != PS_ERR_RULE)
        return ps_py_raise(status);
    if (fault->rule == NULL)
        return PyErr_Format(PyExc_ValueError, "%s must be at least %lld, got %lld",
                            fault->argument, (long long)fault->nearest,
                            (long long)fault->value);
    PyObject *text = rule_text(family, fault);
    if (text != NULL)
        PyErr_SetObject(PyExc_ValueError, text);
    Py_XDECREF(text);
    return NULL;
}

PyDoc_STRVAR(
    generate_doc,
    "generate($module, name, p, m, options, /)\n--\n\n"
    "(ops, offsets, num_stages, num_microbatches, broken) of a family's schedule. "
    "options has one entry for each of the family's: a whole number (for words: the index), or "
    "None for the default. broken is None, or the rule that the options break, so that the "
    "ranks may wait in a circle.");

static PyObject *generate(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *p_object;
    PyObject *m_object;
    PyObject *options;
    if (!PyArg_ParseTuple(args, "sOOO!:generate", &name, &p_object, &m_object, &PyTuple_Type,
                          &options))
        return NULL;
    const ps_family *family = ps_family_find(name);
    if (family == NULL)
        return PyErr_Format(PyExc_ValueError, "no schedule is named '%s'", name);
    if (PyTuple_GET_SIZE(options) != family->num_options)
        return PyErr_Format(PyExc_ValueError, "%s takes %d options, got %zd", name,
                            (int)family->num_options, PyTuple_GET_SIZE(options));
    int32_t p;
    int32_t m;
    if (int32_argument(p_object, "p", &p) < 0 || int32_argument(m_object, "m", &m) < 0)
        return NULL;
    ps_config config;
    ps_config_init(family, p, m, &config);
    for (int32_t i = 0; i < family->num_options; i++) {
        PyObject *value = PyTuple_GET_ITEM(options, i);
        if (value != Py_None &&
            int32_argument(value, family->options[i].name, &config.option[i]) < 0)
            return NULL;
    }
    ps_rule_fault fault = {0};
    ps_status status = ps_config_check(family, &config, &fault);
    if (status != PS_OK)
        return raise_rule(family, status, &fault);
    int32_t num_stages;
    int32_t num_microbatches;
    status = ps_family_size(family, &config, &num_stages, &num_microbatches);
    if (status != PS_OK)
        return raise_size(status, &config);

    /* Ask for the least the ops can take before O(p) work on their offsets, so that
     * a schedule which cannot be held is refused at once. */
    void *room = PyMem_RawMalloc((size_t)p * (size_t)num_microbatches * sizeof(ps_op));
    PyMem_RawFree(room);
    if (room == NULL)
        return PyErr_Format(PyExc_MemoryError, "no memory for the schedule of p=%d and m=%d",
                            (int)p, (int)m);

    npy_intp num_offsets = (npy_intp)p + 1;
    PyArrayObject *ops = NULL;
    PyObject *result = NULL;
    PyArrayObject *offsets = (PyArrayObject *)PyArray_SimpleNew(1, &num_offsets, NPY_INT64);
    if (offsets == NULL)
        return NULL;
    int64_t *offsets_data = PyArray_DATA(offsets);
    Py_BEGIN_ALLOW_THREADS
    status = ps_family_offsets(family, &config, offsets_data);
    Py_END_ALLOW_THREADS
    if (status != PS_OK) {
        raise_size(status, &config);
        goto done;
    }
    ops = ps_py_new_ops(module, offsets_data[p]);
    if (ops == NULL)
        goto done;
    ps_op *ops_data = PyArray_DATA(ops);
    Py_BEGIN_ALLOW_THREADS
    status = ps_family_fill(family, &config, offsets_data, ops_data);
    Py_END_ALLOW_THREADS
    if (status != PS_OK) {
        ps_py_raise(status);
        goto done;
    }
    int broken = family->may_deadlock != NULL && family->may_deadlock(&config, &fault);
    result = Py_BuildValue("(OOiiN)", ops, offsets, (int)num_stages, (int)num_microbatches,
                           broken ? rule_text(family, &fault) : Py_NewRef(Py_None));
done:
    Py_XDECREF(ops);
    Py_DECREF(offsets);
    return result;
}

PyDoc_STRVAR(replicated_doc, "replicated($module, replicas, in_flight, m, /)\n--\n\n"
                             "(ops, offsets) of PipeDream's 1F1B-RR over replicated stages.");

static PyObject *replicated(PyObject *module, PyObject *args)
{
    PyObject *replicas_object, *in_flight_object, *m_object;
    int32_t m;
    if (!PyArg_ParseTuple(args, "OOO:replicated", &replicas_object, &in_flight_object,
                          &m_object) ||
        int32_argument(m_object, "m", &m) < 0)
        return NULL;
    const int flags = NPY_ARRAY_CARRAY | NPY_ARRAY_ENSURECOPY;
    PyArrayObject *in_flight = NULL, *offsets = NULL, *ops = NULL;
    PyObject *result = NULL;
    PyArrayObject *replicas =
        (PyArrayObject *)PyArray_FROMANY(replicas_object, NPY_INT32, 1, 1, flags);
    if (replicas == NULL)
        return NULL;
    in_flight = (PyArrayObject *)PyArray_FROMANY(in_flight_object, NPY_INT32, 1, 1, flags);
    if (in_flight == NULL)
        goto done;
    npy_intp num_stages = PyArray_SIZE(replicas);
    if (num_stages > INT32_MAX || PyArray_SIZE(in_flight) != num_stages) {
        PyErr_SetString(PyExc_ValueError, "in_flight must have one value for each stage");
        goto done;
    }
    const int32_t *replicas_data = PyArray_DATA(replicas);
    const int32_t *in_flight_data = PyArray_DATA(in_flight);
    int32_t stages = (int32_t)num_stages;
    int32_t ranks;
    ps_status status = ps_replicated_ranks(replicas_data, stages, &ranks);
    if (status != PS_OK) {
        ps_py_raise(status);
        goto done;
    }
    npy_intp num_offsets = (npy_intp)ranks + 1;
    offsets = (PyArrayObject *)PyArray_SimpleNew(1, &num_offsets, NPY_INT64);
    if (offsets == NULL)
        goto done;
    int64_t *offsets_data = PyArray_DATA(offsets);
    status = ps_replicated_offsets(replicas_data, stages, m, offsets_data);
    if (status != PS_OK) {
        ps_py_raise(status);
        goto done;
    }
    ops = ps_py_new_ops(module, offsets_data[ranks]);
    if (ops == NULL)
        goto done;
    ps_op *ops_data = PyArray_DATA(ops);
    Py_BEGIN_ALLOW_THREADS
    status =
        ps_replicated_fill(replicas_data, in_flight_data, stages, m, offsets_data, ops_data);
    Py_END_ALLOW_THREADS
    if (status != PS_OK)
        ps_py_raise(status);
    else
        result = Py_BuildValue("(OO)", ops, offsets);
done:
    Py_XDECREF(ops);
    Py_XDECREF(offsets);
    Py_XDECREF(in_flight);
    Py_DECREF(replicas);
    return result;
}

static PyMethodDef generate_methods[] = {
    {"families", families, METH_NOARGS, families_doc},
    {"generate", generate, METH_VARARGS, generate_doc},
    {"replicated", replicated, METH_VARARGS, replicated_doc},
    {NULL, NULL, 0, NULL},
};

int ps_py_add_generate(PyObject *module)
{
    return PyModule_AddFunctions(module, generate_methods);
}
