#include "ps_table.h"

#include <string.h>

/* The instructions are chosen when the program runs, so that one build serves
 * every x86-64. Elsewhere the compiler's own vectors must do. */
#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#define PS_TABLE_AVX2 1
#include <immintrin.h>
#else
#define PS_TABLE_AVX2 0
#endif

ps_status ps_table_shape(int64_t p, int64_t m, int64_t *slots, int64_t *cells)
{
    if (p < 1 || m < 1)
        return PS_ERR_TOO_SMALL;
    int64_t columns, count;
    ps_status status = ps_add(m, p - 1, &columns);
    if (status != PS_OK)
        return status;
    status = ps_mul(p, columns, &count);
    if (status != PS_OK)
        return status;
    if ((uint64_t)count > (uint64_t)PTRDIFF_MAX / sizeof(int64_t))
        return PS_ERR_OVERFLOW;
    *slots = columns;
    *cells = count;
    return PS_OK;
}

/* Row r ends with p - 1 - r idle cells and row r + 1 begins with r + 1, which
 * makes p between any two runs of micro-batches: read as one line, the table is
 * p runs 0 .. m - 1 with p idle cells between them. */
static void fill_forward_plain(int64_t p, int64_t m, int64_t *table)
{
    int64_t *cell = table;
    for (int64_t rank = 0; rank < p; rank++) {
        for (int64_t j = 0; j < m; j++)
            cell[j] = j;
        cell += m;
        if (rank == p - 1)
            break;
        for (int64_t idle = 0; idle < p; idle++)
            cell[idle] = -1;
        cell += p;
    }
}

/* -1 is all ones in every width and byte order. memcpy, because the cells need
 * not be aligned. */
#define PS_COUNT_IDLE(type)                                                                    \
    static int64_t count_idle_##type(const char *cells, int64_t count, int64_t stride)         \
    {                                                                                          \
        int64_t idle = 0;                                                                      \
        for (int64_t i = 0; i < count; i++) {                                                  \
            type value;                                                                        \
            memcpy(&value, cells + i * stride, sizeof value);                                  \
            idle += value == (type)-1;                                                         \
        }                                                                                      \
        return idle;                                                                           \
    }
PS_COUNT_IDLE(uint8_t)
PS_COUNT_IDLE(uint16_t)
PS_COUNT_IDLE(uint32_t)
PS_COUNT_IDLE(uint64_t)
#undef PS_COUNT_IDLE

static int64_t count_idle_strided(const char *cells, int64_t count, int64_t stride,
                                  size_t itemsize)
{
    switch (itemsize) {
    case 1:
        return count_idle_uint8_t(cells, count, stride);
    case 2:
        return count_idle_uint16_t(cells, count, stride);
    case 4:
        return count_idle_uint32_t(cells, count, stride);
    default:
        return count_idle_uint64_t(cells, count, stride);
    }
}

static int64_t count_idle_plain(const char *cells, int64_t count, size_t itemsize)
{
    /* Constant strides, for the compiler's vectors. */
    switch (itemsize) {
    case 1:
        return count_idle_uint8_t(cells, count, 1);
    case 2:
        return count_idle_uint16_t(cells, count, 2);
    case 4:
        return count_idle_uint32_t(cells, count, 4);
    default:
        return count_idle_uint64_t(cells, count, 8);
    }
}

static const ps_table_kernels kernels_plain = {"plain", fill_forward_plain, count_idle_plain};

#if PS_TABLE_AVX2

#define PS_AVX2 __attribute__((target("avx2")))

PS_AVX2 static inline void store(int64_t *cell, __m256i value)
{
    _mm256_storeu_si256((__m256i *)(void *)cell, value);
}

/* cell[i] = first[i] + i * step for the count cells, in vectors: the first where the
 * cells begin, the last where they end, and between them whole ones at addresses
 * that no cache line splits. The ends overlap their neighbours with equal values. */
PS_AVX2 static inline void fill_run(int64_t *cell, int64_t count, int64_t first, int64_t step)
{
    if (count < 4) {
        for (int64_t i = 0; i < count; i++)
            cell[i] = first + i * step;
        return;
    }
    const __m256i lanes = _mm256_setr_epi64x(0, step, 2 * step, 3 * step);
    const __m256i four = _mm256_set1_epi64x(4 * step);
    store(cell, _mm256_add_epi64(_mm256_set1_epi64x(first), lanes));
    int64_t i = 4 - (int64_t)((uintptr_t)cell % 32 / 8);
    __m256i next = _mm256_add_epi64(_mm256_set1_epi64x(first + i * step), lanes);
    for (; i <= count - 4; i += 4) {
        store(cell + i, next);
        next = _mm256_add_epi64(next, four);
    }
    i = count - 4;
    store(cell + i, _mm256_add_epi64(_mm256_set1_epi64x(first + i * step), lanes));
}

PS_AVX2 static void fill_forward_avx2(int64_t p, int64_t m, int64_t *table)
{
    int64_t *cell = table;
    for (int64_t rank = 0; rank < p; rank++) {
        fill_run(cell, m, 0, 1);
        cell += m;
        if (rank == p - 1)
            break;
        fill_run(cell, p, -1, 0);
        cell += p;
    }
}

/* 0xFF in every byte of every cell that is -1. */
PS_AVX2 static inline __m256i idle_bytes(const char *cells, size_t itemsize)
{
    const __m256i ones = _mm256_set1_epi8(-1);
    __m256i value = _mm256_loadu_si256((const __m256i *)(const void *)cells);
    switch (itemsize) {
    case 1:
        return _mm256_cmpeq_epi8(value, ones);
    case 2:
        return _mm256_cmpeq_epi16(value, ones);
    case 4:
        return _mm256_cmpeq_epi32(value, ones);
    default:
        return _mm256_cmpeq_epi64(value, ones);
    }
}

/* Counts bytes, whatever the width, in bytes: 255 vectors at most before they are
 * added up. The vectors begin where no cache line splits them, if the cells allow,
 * and each step asks for the memory some steps ahead: CPUs do so by themselves, but
 * not far enough, nor past the end of a page. itemsize is a constant wherever this
 * is inlined. */
PS_AVX2 static inline int64_t count_idle_vectors(const char *cells, int64_t count,
                                                 size_t itemsize)
{
    enum { STEP = 128, AHEAD = 2048 };
    const __m256i zero = _mm256_setzero_si256();
    int64_t head = (int64_t)((32 - (uintptr_t)cells % 32) % 32 / itemsize);
    if (head > count)
        head = count;
    const char *here = cells + head * (int64_t)itemsize;
    int64_t left = (count - head) * (int64_t)itemsize / STEP;
    __m256i total = zero;
    while (left > 0) {
        int64_t block = left < 255 ? left : 255;
        left -= block;
        __m256i a = zero, b = zero, c = zero, d = zero;
        for (; block > 0; block--, here += STEP) {
            /* As a number: the address may lie past the end, and is not read then. */
            const uintptr_t ahead = (uintptr_t)here + AHEAD;
            _mm_prefetch((const char *)ahead, _MM_HINT_T0);
            _mm_prefetch((const char *)(ahead + 64), _MM_HINT_T0);
            a = _mm256_sub_epi8(a, idle_bytes(here, itemsize));
            b = _mm256_sub_epi8(b, idle_bytes(here + 32, itemsize));
            c = _mm256_sub_epi8(c, idle_bytes(here + 64, itemsize));
            d = _mm256_sub_epi8(d, idle_bytes(here + 96, itemsize));
        }
        total = _mm256_add_epi64(total, _mm256_sad_epu8(a, zero));
        total = _mm256_add_epi64(total, _mm256_sad_epu8(b, zero));
        total = _mm256_add_epi64(total, _mm256_sad_epu8(c, zero));
        total = _mm256_add_epi64(total, _mm256_sad_epu8(d, zero));
    }
    int64_t lanes[4];
    _mm256_storeu_si256((__m256i *)(void *)lanes, total);
    int64_t idle = (lanes[0] + lanes[1] + lanes[2] + lanes[3]) / (int64_t)itemsize;
    int64_t tail = count - (here - cells) / (int64_t)itemsize;
    return idle + count_idle_plain(cells, head, itemsize) +
           count_idle_plain(here, tail, itemsize);
}

PS_AVX2 static int64_t count_idle_avx2(const char *cells, int64_t count, size_t itemsize)
{
    switch (itemsize) {
    case 1:
        return count_idle_vectors(cells, count, 1);
    case 2:
        return count_idle_vectors(cells, count, 2);
    case 4:
        return count_idle_vectors(cells, count, 4);
    default:
        return count_idle_vectors(cells, count, 8);
    }
}

static const ps_table_kernels kernels_avx2 = {"avx2", fill_forward_avx2, count_idle_avx2};

static int has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
}

#endif

const ps_table_kernels *ps_table_kernels_at(int32_t index)
{
    if (index == 0)
        return &kernels_plain;
#if PS_TABLE_AVX2
    if (index == 1 && has_avx2())
        return &kernels_avx2;
#endif
    return NULL;
}

const ps_table_kernels *ps_table_kernels_best(void)
{
    const ps_table_kernels *best = ps_table_kernels_at(0);
    for (int32_t index = 1; ps_table_kernels_at(index) != NULL; index++)
        best = ps_table_kernels_at(index);
    return best;
}

/* One line of cells in any stride. */
static int64_t count_line(const char *cells, int64_t count, int64_t stride, size_t itemsize,
                          const ps_table_kernels *kernels)
{
    if (stride == (int64_t)itemsize)
        return kernels->count_idle(cells, count, itemsize);
    return count_idle_strided(cells, count, stride, itemsize);
}

int64_t ps_table_count_idle(const ps_table_view *view, const ps_table_kernels *kernels)
{
    if (view->shape[0] == 0 || view->shape[1] == 0)
        return 0;
    const char *data = view->data;
    int64_t shape[2] = {view->shape[0], view->shape[1]};
    int64_t strides[2] = {view->strides[0], view->strides[1]};
    int64_t repeats = 1;
    for (int axis = 0; axis < 2; axis++) {
        if (strides[axis] == 0 || shape[axis] == 1) { /* the same cells, shape times */
            repeats *= shape[axis];
            shape[axis] = 1;
            strides[axis] = 0;
        }
        if (strides[axis] < 0) { /* the order does not count: run upwards */
            data += (shape[axis] - 1) * strides[axis];
            strides[axis] = -strides[axis];
        }
    }
    /* The inner loop takes the denser axis (an axis of one cell is no axis). */
    int inner = shape[1] == 1 || (shape[0] > 1 && strides[0] < strides[1]) ? 0 : 1;
    int outer = 1 - inner;
    if (shape[outer] > 1 && strides[outer] == shape[inner] * strides[inner]) {
        shape[inner] *= shape[outer]; /* no gap between the lines: one long line */
        shape[outer] = 1;
    }
    int64_t idle = 0;
    for (int64_t line = 0; line < shape[outer]; line++)
        idle += count_line(data + line * strides[outer], shape[inner], strides[inner],
                           view->itemsize, kernels);
    return idle * repeats;
}
