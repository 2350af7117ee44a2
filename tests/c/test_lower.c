/* Lowering, and the table in unit time. */
#include "ctest.h"
#include "ps_lower.h"
#include "schedules.h"

static void test_lower(void)
{
    static const ps_op expected[] = {
        OP(PS_F, 0, 0),      OP(PS_SEND_F, 0, 0), OP(PS_F, 0, 1),      OP(PS_SEND_F, 0, 1),
        OP(PS_RECV_B, 0, 0), OP(PS_B, 0, 0),      OP(PS_RECV_B, 0, 1), OP(PS_B, 0, 1),
        OP(PS_RECV_F, 1, 0), OP(PS_F, 1, 0),      OP(PS_B, 1, 0),      OP(PS_RECV_F, 1, 1),
        OP(PS_SEND_B, 1, 0), OP(PS_F, 1, 1),      OP(PS_B, 1, 1),      OP(PS_SEND_B, 1, 1),
    };
    ps_schedule s = two_ranks(ONE_F_ONE_B);
    ps_index index;
    ps_fault fault;
    int64_t offsets[3];
    ps_op ops[COUNT(expected)];
    CHECK_INT(ps_index_init(&index, &s, &fault), PS_OK);
    CHECK_INT(ps_lower_offsets(&s, &index, offsets), PS_OK);
    CHECK_INT(offsets[1], 8);
    CHECK_INT(offsets[2], COUNT(expected));
    CHECK_EVERY_ALLOC(ps_lower_fill(&s, &index, offsets, ops));
    CHECK(memcmp(ops, expected, sizeof expected) == 0);
    ps_index_free(&index);
}

static void test_table(void)
{
    static const int32_t unit[PS_NUM_COMPUTE_KINDS] = {1, 1, 1, 1};
    static const int64_t expected[] = {0, 1, -1, 0, -1, 1, -1, 0, 0, 1, 1, -1};
    ps_schedule s = two_ranks(ONE_F_ONE_B);
    ps_index index;
    ps_fault fault;
    int64_t end[8];
    int64_t table[12];
    CHECK_INT(ps_index_init(&index, &s, &fault), PS_OK);
    CHECK_EVERY_ALLOC(ps_lower_ends(&s, &index, unit, end));
    CHECK_INT(end[3], 6);
    ps_lower_table(&s, end, 6, table);
    CHECK(memcmp(table, expected, sizeof expected) == 0);
    ps_index_free(&index);
}

/* What is not legal is refused all the same, and touches nothing it should not. */
static void test_waiting(void)
{
    static const ps_op ops[] = {
        OP(PS_F, 0, 0), OP(PS_B, 0, 0), OP(PS_F, 0, 1), OP(PS_B, 0, 1),
        OP(PS_F, 1, 1), OP(PS_B, 1, 1), OP(PS_F, 1, 0), OP(PS_B, 1, 0),
    };
    ps_schedule s = two_ranks(ops);
    ps_index index;
    ps_fault fault;
    int64_t offsets[3];
    ps_op out[16];
    CHECK_INT(ps_index_init(&index, &s, &fault), PS_OK);
    CHECK_INT(ps_lower_offsets(&s, &index, offsets), PS_OK);
    CHECK_INT(ps_lower_fill(&s, &index, offsets, out), PS_ERR_DEADLOCK);
    ps_index_free(&index);
}

int main(void)
{
    RUN(test_lower);
    RUN(test_table);
    RUN(test_waiting);
    return ctest_done();
}
