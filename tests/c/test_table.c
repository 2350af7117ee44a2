/* The forward table and the idle count, in every kernel this CPU runs, against the
 * definition; memory around the table stays untouched. */
#include "ctest.h"
#include "ps_table.h"

enum { GUARD = 77 };

static void check_fill(const ps_table_kernels *kernels, int64_t p, int64_t m)
{
    int64_t slots = 0, cells = 0;
    CHECK_INT(ps_table_shape(p, m, &slots, &cells), PS_OK);
    CHECK_INT(slots, m + p - 1);
    CHECK_INT(cells, p * slots);
    void *memory = NULL;
    CHECK_INT(ps_alloc(cells + 2, sizeof(int64_t), &memory), PS_OK);
    int64_t *guarded = memory;
    int64_t *table = guarded + 1;
    guarded[0] = table[cells] = GUARD;
    kernels->fill_forward(p, m, table);
    int64_t wrong = 0;
    for (int64_t rank = 0; rank < p; rank++)
        for (int64_t slot = 0; slot < slots; slot++) {
            int64_t j = slot - rank;
            wrong += table[rank * slots + slot] != (j >= 0 && j < m ? j : -1);
        }
    CHECK_INT(wrong, 0);
    CHECK_INT(guarded[0], GUARD);
    CHECK_INT(table[cells], GUARD);
    ps_table_view view = {(const char *)table, {p, slots}, {slots * 8, 8}, 8};
    CHECK_INT(ps_table_count_idle(&view, kernels), p * (p - 1));
    free(memory);
}

static void test_fill(void)
{
    const ps_table_kernels *kernels;
    for (int32_t i = 0; (kernels = ps_table_kernels_at(i)) != NULL; i++)
        for (int64_t p = 1; p <= 20; p++)
            for (int64_t m = 1; m <= 20; m++)
                check_fill(kernels, p, m);
}

static void test_count_every_width_length_and_offset(void)
{
    static const size_t WIDTHS[] = {1, 2, 4, 8};
    enum { ITEMS = 150 };
    const ps_table_kernels *kernels;
    for (int32_t k = 0; (kernels = ps_table_kernels_at(k)) != NULL; k++)
        for (size_t w = 0; w < 4; w++)
            for (int64_t count = 0; count <= ITEMS; count++) {
                /* An exact block, so that valgrind sees a read past either end. */
                size_t width = WIDTHS[w], offset = (size_t)count % 3;
                void *memory = NULL;
                CHECK_INT(ps_alloc_zeroed(count * (int64_t)width + (int64_t)offset, 1, &memory),
                          PS_OK);
                char *cells = (char *)memory + offset;
                int64_t idle = 0;
                for (int64_t i = 0; i < count; i++)
                    if (i % 7 < 3 || i == count - 1) {
                        memset(cells + i * (int64_t)width, 0xFF, width);
                        idle++;
                    } else {
                        memset(cells + i * (int64_t)width, 0xFF, width - 1); /* nearly */
                    }
                CHECK_INT(kernels->count_idle(cells, count, width), idle);
                free(memory);
            }
}

/* Rows 0 .. 4 of 7 columns, seen through strides of every sign and order. */
static void test_count_strided(void)
{
    enum { ROWS = 5, COLUMNS = 7 };
    int32_t cells[ROWS][COLUMNS];
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            cells[row][column] = (row * 3 + column) % 4 == 0 ? -1 : row;
    const int64_t rows[] = {1, 2, -1, -2, 0};
    const int64_t columns[] = {1, 3, -1, -3, 0};
    const ps_table_kernels *kernels;
    for (int32_t k = 0; (kernels = ps_table_kernels_at(k)) != NULL; k++)
        for (int a = 0; a < 5; a++)
            for (int b = 0; b < 5; b++) {
                int64_t high = rows[a] == 2 || rows[a] == -2 ? 3 : ROWS;
                int64_t wide = columns[b] == 3 || columns[b] == -3 ? 3 : COLUMNS;
                int64_t row0 = rows[a] < 0 ? ROWS - 1 : 0;
                int64_t column0 = columns[b] < 0 ? COLUMNS - 1 : 0;
                int64_t idle = 0;
                for (int64_t i = 0; i < high; i++)
                    for (int64_t j = 0; j < wide; j++)
                        idle += cells[row0 + i * rows[a]][column0 + j * columns[b]] == -1;
                ps_table_view view = {
                    (const char *)&cells[row0][column0],
                    {high, wide},
                    {rows[a] * (int64_t)sizeof cells[0], columns[b] * (int64_t)sizeof(int32_t)},
                    sizeof(int32_t),
                };
                CHECK_INT(ps_table_count_idle(&view, kernels), idle);
                ps_table_view turned = {view.data,
                                        {view.shape[1], view.shape[0]},
                                        {view.strides[1], view.strides[0]},
                                        view.itemsize};
                CHECK_INT(ps_table_count_idle(&turned, kernels), idle);
            }
}

static void test_count_nothing(void)
{
    ps_table_view view = {NULL, {0, 5}, {40, 8}, 8};
    CHECK_INT(ps_table_count_idle(&view, ps_table_kernels_best()), 0);
    view.shape[0] = 5;
    view.shape[1] = 0;
    CHECK_INT(ps_table_count_idle(&view, ps_table_kernels_best()), 0);
}

static void test_shape_at_the_edges(void)
{
    const int64_t most = INT64_MAX / 8;
    int64_t slots = 7, cells = 7;
    CHECK_INT(ps_table_shape(0, 1, &slots, &cells), PS_ERR_TOO_SMALL);
    CHECK_INT(ps_table_shape(1, 0, &slots, &cells), PS_ERR_TOO_SMALL);
    CHECK_INT(ps_table_shape(INT64_MIN, 1, &slots, &cells), PS_ERR_TOO_SMALL);
    CHECK_INT(ps_table_shape(INT64_MAX, INT64_MAX, &slots, &cells), PS_ERR_OVERFLOW);
    CHECK_INT(ps_table_shape(2, INT64_MAX, &slots, &cells), PS_ERR_OVERFLOW);
    CHECK_INT(ps_table_shape(INT64_MAX, 2, &slots, &cells), PS_ERR_OVERFLOW);
    CHECK_INT(ps_table_shape(INT64_C(3037000500), 1, &slots, &cells), PS_ERR_OVERFLOW);
    CHECK_INT(ps_table_shape(1, most + 1, &slots, &cells), PS_ERR_OVERFLOW);
    CHECK_INT(slots, 7);
    CHECK_INT(cells, 7);
    CHECK_INT(ps_table_shape(1, most, &slots, &cells), PS_OK);
    CHECK_INT(slots, most);
    CHECK_INT(cells, most);
}

static void test_kernels(void)
{
    CHECK(strcmp(ps_table_kernels_at(0)->name, "plain") == 0);
    CHECK(ps_table_kernels_at(-1) == NULL);
    CHECK(ps_table_kernels_at(99) == NULL);
    CHECK(ps_table_kernels_best() != NULL);
}

int main(void)
{
    RUN(test_fill);
    RUN(test_count_every_width_length_and_offset);
    RUN(test_count_strided);
    RUN(test_count_nothing);
    RUN(test_shape_at_the_edges);
    RUN(test_kernels);
    return ctest_done();
}
