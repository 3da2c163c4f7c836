/* The functions as Python sees them: they check every argument, let go of the interpreter lock, and
   call what is in rows.c and ids.c. Buffers to write into are the caller's. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ids.h"
#include "rows.h"

#define INTERFACE 1 /* goes up when a function changes what it takes or gives */
#define MOST_BUFFERS 10

typedef struct {
    Py_buffer views[MOST_BUFFERS];
    int count;
} buffers;

static void release(buffers *all)
{
    while (all->count)
        PyBuffer_Release(&all->views[--all->count]);
}

/* The memory of an object as items of some size; NULL with an exception set where it is not that. */
static void *take(buffers *all, PyObject *from, size_t item, int writable, size_t *items)
{
    static uint64_t nothing[1];
    Py_buffer *view = &all->views[all->count];
    if (PyObject_GetBuffer(from, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0)
        return NULL;
    all->count++;
    if ((size_t)view->len % item || (uintptr_t)view->buf % item) {
        PyErr_SetString(PyExc_ValueError, "a buffer does not hold whole, aligned numbers");
        return NULL;
    }
    *items = (size_t)view->len / item;
    return *items ? view->buf : nothing;
}

static PyObject *wrong(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return NULL;
}

/* The bytes of an entry of a tuple; they live as long as the tuple. */
static int span_of(PyObject *tuple, Py_ssize_t at, span *found)
{
    PyObject *entry = PyTuple_GetItem(tuple, at);
    char *bytes;
    Py_ssize_t size;
    if (!entry || PyBytes_AsStringAndSize(entry, &bytes, &size) < 0)
        return 0;
    found->at = (const uint8_t *)bytes;
    found->size = (size_t)size;
    return 1;
}

static int take_shape(
    PyObject *names, PyObject *kinds, PyObject *keys, PyObject *roles, PyObject *numbers,
    shape *wanted)
{
    Py_ssize_t columns = PyTuple_Size(names), count = PyTuple_Size(roles);
    int turns = 0, texts = 0;
    if (columns < 1 || columns > MOST_COLUMNS || PyTuple_Size(kinds) != columns
        || PyTuple_Size(keys) != 2 || count > MOST_ROLES || PyTuple_Size(numbers) != count) {
        wrong("columns, kinds, keys of turns or roles do not match, or are too many");
        return 0;
    }
    wanted->columns = (int)columns;
    wanted->role_count = (int)count;
    for (Py_ssize_t i = 0; i < columns; i++) {
        long kind = PyLong_AsLong(PyTuple_GetItem(kinds, i));
        if ((kind == -1 && PyErr_Occurred()) || !span_of(names, i, &wanted->names[i]))
            return 0;
        if (kind < TEXT || kind > OTHER) {
            wrong("a column is a text, turns or another value");
            return 0;
        }
        wanted->kinds[i] = (int)kind;
        turns += kind == TURNS;
        texts += kind == TEXT;
    }
    if (turns > 1 || (turns && texts)) {
        wrong("a row has texts, or one column of turns");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        long number = PyLong_AsLong(PyTuple_GetItem(numbers, i));
        if ((number == -1 && PyErr_Occurred()) || !span_of(roles, i, &wanted->roles[i]))
            return 0;
        if (number < 0 || number > 127) {
            wrong("the number of a role does not fit");
            return 0;
        }
        wanted->numbers[i] = (int8_t)number;
    }
    return span_of(keys, 0, &wanted->who) && span_of(keys, 1, &wanted->said);
}

static const char read_doc[] =
    "read_rows(content, starts, names, kinds, keys, roles, numbers, longest,\n"
    "          taken, text, ends, turn_roles, sizes, other)\n"
    "--\n\n"
    "Read lines of JSON that are flat rows of just these columns.\n\n"
    "starts: int64, where each line starts, and one behind the last would. kinds: 0 a text, 1 a\n"
    "list of turns, 2 any other plain value. Written: taken (uint8 per line), text (uint8), ends\n"
    "(int32 per text), turn_roles (int8 per text, empty without turns), sizes (int64 per line:\n"
    "texts of each row that was taken), other (uint8: JSON values, a comma behind each).\n"
    "Returns the numbers of rows, of texts, of bytes of text, and of bytes of other values.";

static PyObject *read_rows(PyObject *self, PyObject *args)
{
    PyObject *content, *starts, *names, *kinds, *keys, *roles, *numbers;
    PyObject *taken, *text, *ends, *turn_roles, *sizes, *other, *result = NULL;
    Py_ssize_t longest;
    buffers held = {.count = 0};
    shape wanted = {.columns = 0};
    output out = {.text_size = 0};
    size_t size, count, flags, room, roles_room;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "OOO!O!O!O!O!nOOOOOO", &content, &starts, &PyTuple_Type, &names, &PyTuple_Type,
            &kinds, &PyTuple_Type, &keys, &PyTuple_Type, &roles, &PyTuple_Type, &numbers, &longest,
            &taken, &text, &ends, &turn_roles, &sizes, &other))
        return NULL;
    if (longest < 0)
        return wrong("a line has no fewer than 0 bytes");
    wanted.longest = (size_t)longest;
    if (!take_shape(names, kinds, keys, roles, numbers, &wanted))
        return NULL;
    const uint8_t *bytes = take(&held, content, 1, 0, &size);
    const int64_t *lines = bytes ? take(&held, starts, sizeof(int64_t), 0, &count) : NULL;
    uint8_t *flag = lines ? take(&held, taken, 1, 1, &flags) : NULL;
    out.text = flag ? take(&held, text, 1, 1, &out.text_room) : NULL;
    out.ends = out.text ? take(&held, ends, sizeof(int32_t), 1, &out.texts_room) : NULL;
    out.roles = out.ends ? take(&held, turn_roles, 1, 1, &roles_room) : NULL;
    out.sizes = out.roles ? take(&held, sizes, sizeof(int64_t), 1, &room) : NULL;
    out.other = out.sizes ? take(&held, other, 1, 1, &out.other_room) : NULL;
    if (!out.other)
        goto done;
    if (!count || flags != count - 1 || room != count - 1) {
        wrong("taken and sizes do not have one entry for each line");
        goto done;
    }
    for (int i = 0; i < wanted.columns; i++)
        if (wanted.kinds[i] == TURNS && roles_room < out.texts_room)
            out.texts_room = roles_room;
    /* A line ends before the next one starts, with one byte between. */
    int fine = lines[0] >= 0 && lines[count - 1] >= 1 && (uint64_t)lines[count - 1] - 1 <= size;
    for (size_t i = 0; fine && i + 1 < count; i++)
        fine = lines[i] < lines[i + 1];
    if (!fine && count > 1) {
        wrong("the lines do not follow each other within the content");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (size_t i = 0; i + 1 < count; i++)
        flag[i] = (uint8_t)read_row(&wanted, bytes + lines[i], bytes + lines[i + 1] - 1, &out);
    Py_END_ALLOW_THREADS
    result = Py_BuildValue(
        "nnnn", (Py_ssize_t)out.rows, (Py_ssize_t)out.texts, (Py_ssize_t)out.text_size,
        (Py_ssize_t)out.other_size);
done:
    release(&held);
    return result;
}

static const char assemble_doc[] =
    "assemble(fixed, fixed_bounds, own, own_bounds, trained, places, ids, bounds)\n"
    "--\n\n"
    "Put runs of ids one behind the other: fixed ones as they are, own ones complemented where\n"
    "trained (uint8 per own run). places: int64, which runs, the own ones counted behind the\n"
    "fixed. Written: ids (int32, just as many as there are), bounds (int64, one more than places).";

static PyObject *assemble(PyObject *self, PyObject *args)
{
    PyObject *given[8], *result = NULL;
    buffers held = {.count = 0};
    size_t fixed_size, fixed_count, own_size, own_count, flags, count, room, bound_count;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "OOOOOOOO", &given[0], &given[1], &given[2], &given[3], &given[4], &given[5],
            &given[6], &given[7]))
        return NULL;
    runs fixed = {0}, own = {0};
    fixed.values = take(&held, given[0], sizeof(int32_t), 0, &fixed_size);
    if (fixed.values)
        fixed.bounds = take(&held, given[1], sizeof(int64_t), 0, &fixed_count);
    if (fixed.bounds)
        own.values = take(&held, given[2], sizeof(int32_t), 0, &own_size);
    if (own.values)
        own.bounds = take(&held, given[3], sizeof(int64_t), 0, &own_count);
    const uint8_t *trained = own.bounds ? take(&held, given[4], 1, 0, &flags) : NULL;
    const int64_t *places = trained ? take(&held, given[5], sizeof(int64_t), 0, &count) : NULL;
    int32_t *ids = places ? take(&held, given[6], sizeof(int32_t), 1, &room) : NULL;
    int64_t *bounds = ids ? take(&held, given[7], sizeof(int64_t), 1, &bound_count) : NULL;
    if (!bounds)
        goto done;
    if (!fixed_count || !own_count || flags != own_count - 1 || bound_count != count + 1
        || !are_bounds(fixed.bounds, fixed_count - 1, fixed_size)
        || !are_bounds(own.bounds, own_count - 1, own_size)) {
        wrong("runs, bounds and places do not match");
        goto done;
    }
    fixed.count = fixed_count - 1;
    own.count = own_count - 1;
    int fits;
    Py_BEGIN_ALLOW_THREADS
    fits = put_together(fixed, own, trained, places, count, ids, room, bounds);
    Py_END_ALLOW_THREADS
    if (fits)
        result = Py_NewRef(Py_None);
    else
        wrong("a place is no run, or the ids have another number than there is room for");
done:
    release(&held);
    return result;
}

static const char unfold_doc[] =
    "unfold(folded, ignored, ids, labels)\n"
    "--\n\n"
    "Ids and labels of folded ids, all int32 and equally many; the label is `ignored` where a\n"
    "token is not trained.";

static PyObject *unfold(PyObject *self, PyObject *args)
{
    PyObject *from, *to, *also, *result = NULL;
    int ignored;
    buffers held = {.count = 0};
    size_t count, ids_count, labels_count;
    (void)self;
    if (!PyArg_ParseTuple(args, "OiOO", &from, &ignored, &to, &also))
        return NULL;
    const int32_t *folded = take(&held, from, sizeof(int32_t), 0, &count);
    int32_t *ids = folded ? take(&held, to, sizeof(int32_t), 1, &ids_count) : NULL;
    int32_t *labels = ids ? take(&held, also, sizeof(int32_t), 1, &labels_count) : NULL;
    if (!labels)
        goto done;
    if (ids_count != count || labels_count != count) {
        wrong("ids and labels do not have room for just the folded ids");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    take_apart(folded, count, (int32_t)ignored, ids, labels);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    release(&held);
    return result;
}

static PyMethodDef functions[] = {
    {"read_rows", read_rows, METH_VARARGS, read_doc},
    {"assemble", assemble, METH_VARARGS, assemble_doc},
    {"unfold", unfold, METH_VARARGS, unfold_doc},
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *module)
{
    if (PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "__version__", VERSION);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "posttrain_pipeline_native",
    .m_doc = "What posttrain-pipeline does per row and per token, in C. Not for use by itself.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_posttrain_pipeline_native(void)
{
    return PyModuleDef_Init(&definition);
}
