#include "ps_base.h"

#include <stdlib.h>

const char *ps_strerror(ps_status status)
{
    switch (status) { /* no default: the compiler names a code left out */
    case PS_OK:
        return "no error";
    case PS_ERR_OVERFLOW:
        return "the size cannot be addressed";
    case PS_ERR_MEMORY:
        return "out of memory";
    case PS_ERR_TOO_SMALL:
        return "an argument is below its minimum";
    case PS_ERR_TOO_LARGE:
        return "an argument is above its maximum";
    case PS_ERR_INTERRUPTED:
        return "interrupted";
    case PS_ERR_RULE:
        return "the schedule's definition forbids these arguments";
    case PS_ERR_UNKNOWN:
        return "no schedule family or option of that name";
    case PS_ERR_OP_RANGE:
        return "an op's stage, micro-batch, kind or fuse is out of range";
    case PS_ERR_OP_REPEATED:
        return "an op stands twice";
    case PS_ERR_OP_MISSING:
        return "an op is missing";
    case PS_ERR_OP_PLACE:
        return "a backward is not on the rank of its forward";
    case PS_ERR_OP_ORDER:
        return "an op stands before one it depends on";
    case PS_ERR_OP_SPLIT:
        return "the backward's parts do not make one backward";
    case PS_ERR_OP_PAIR:
        return "an overlapped pair cannot run together";
    case PS_ERR_OP_TRANSFER:
        return "sends and receives do not match";
    case PS_ERR_DEADLOCK:
        return "the ranks wait for each other in a circle";
    case PS_ERR_WORD:
        return "a cell is not an action word";
    case PS_ERR_COST:
        return "a cost is negative, NaN or infinite";
    case PS_ERR_INFEASIBLE:
        return "nothing satisfies the limits";
    }
    return "unknown status";
}

ps_status ps_add(int64_t a, int64_t b, int64_t *out)
{
    if (a > INT64_MAX - b)
        return PS_ERR_OVERFLOW;
    *out = a + b;
    return PS_OK;
}

ps_status ps_mul(int64_t a, int64_t b, int64_t *out)
{
    if (b != 0 && a > INT64_MAX / b)
        return PS_ERR_OVERFLOW;
    *out = a * b;
    return PS_OK;
}

/* Bytes to ask for; at least one, so that NULL always means failure. */
static ps_status byte_count(int64_t count, size_t size, size_t *out)
{
    if (count < 0 || (size != 0 && (uint64_t)count > (uint64_t)(PTRDIFF_MAX) / size))
        return PS_ERR_OVERFLOW;
    size_t bytes = (size_t)count * size;
    *out = bytes != 0 ? bytes : 1;
    return PS_OK;
}

ps_status ps_alloc(int64_t count, size_t size, void **out)
{
    size_t bytes;
    ps_status status = byte_count(count, size, &bytes);
    if (status != PS_OK)
        return status;
    *out = malloc(bytes);
    return *out != NULL ? PS_OK : PS_ERR_MEMORY;
}

ps_status ps_alloc_zeroed(int64_t count, size_t size, void **out)
{
    size_t bytes;
    ps_status status = byte_count(count, size, &bytes);
    if (status != PS_OK)
        return status;
    *out = calloc(bytes, 1);
    return *out != NULL ? PS_OK : PS_ERR_MEMORY;
}
