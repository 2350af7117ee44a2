/* The module object: state, areas, declarations. */
#define PS_PY_MODULE_FILE
#include "py_common.h"

PyObject *ps_py_raise(ps_status status)
{
    PyObject *type = PyExc_ValueError;
    if (status == PS_ERR_OVERFLOW)
        type = PyExc_OverflowError;
    else if (status == PS_ERR_MEMORY)
        return PyErr_NoMemory();
    PyErr_SetString(type, ps_strerror(status));
    return NULL;
}

/* [("stage", "=i4"), ...]: ps_op as NumPy sees it. */
static PyArray_Descr *make_op_dtype(void)
{
    PyObject *fields = Py_BuildValue("[(ss)(ss)(ss)(ss)]", "stage", "=i4", "microbatch", "=i4",
                                     "kind", "=i2", "fuse", "=i2");
    if (fields == NULL)
        return NULL;
    PyArray_Descr *descr = NULL;
    int ok = PyArray_DescrConverter(fields, &descr);
    Py_DECREF(fields);
    return ok ? descr : NULL;
}

static int module_exec(PyObject *module)
{
    if (PyArray_ImportNumPyAPI() < 0)
        return -1;
    ps_py_state *state = ps_py_get_state(module);
    state->op_dtype = make_op_dtype();
    if (state->op_dtype == NULL)
        return -1;
    if (PyModule_AddObjectRef(module, "OP_DTYPE", (PyObject *)state->op_dtype) < 0)
        return -1;
    if (ps_py_add_table(module) < 0)
        return -1;
    if (ps_py_add_generate(module) < 0)
        return -1;
    if (ps_py_add_check(module) < 0)
        return -1;
    if (ps_py_add_lower(module) < 0)
        return -1;
    if (ps_py_add_simulate(module) < 0)
        return -1;
    if (ps_py_add_words(module) < 0)
        return -1;
    if (ps_py_add_partition(module) < 0)
        return -1;
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    ps_py_state *state = ps_py_get_state(module);
    Py_VISIT(state->op_dtype);
    return 0;
}

static int module_clear(PyObject *module)
{
    ps_py_state *state = ps_py_get_state(module);
    Py_CLEAR(state->op_dtype);
    return 0;
}

static void module_free(void *module)
{
    (void)module_clear((PyObject *)module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)module_exec}, /* ISO C has no direct way */
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "pipesched._core",
    .m_doc = "The C core of pipesched. Use the names of the pipesched package instead.",
    .m_size = sizeof(ps_py_state),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&module_def);
}
