/* The dependency rule, the index, and what it refuses. */
#include "ctest.h"
#include "schedules.h"

static void test_dependency_rule(void)
{
    ps_schedule s = two_ranks(ONE_F_ONE_B);
    ps_op f1 = OP(PS_F, 1, 1);
    ps_op b0 = OP(PS_B, 0, 1);
    ps_op i0 = OP(PS_I, 0, 0);
    ps_op w0 = OP(PS_W, 0, 0);
    CHECK_INT(ps_op_cell(&s, f1), 3);
    CHECK_INT(ps_input_cell(&s, f1, 3), 1);
    CHECK_INT(ps_output_cell(&s, f1, 3), -1);
    CHECK_INT(ps_input_cell(&s, b0, 1), 3);
    CHECK_INT(ps_output_cell(&s, b0, 1), -1);
    CHECK_INT(ps_input_cell(&s, i0, 0), 2);
    CHECK_INT(ps_input_cell(&s, w0, 0), -1);
    CHECK_INT(ps_output_cell(&s, w0, 0), -1);
    CHECK_INT(ps_own_lane(PS_F), -1);
    CHECK_INT(ps_own_lane(PS_B), PS_LANE_F);
    CHECK_INT(ps_own_lane(PS_I), PS_LANE_F);
    CHECK_INT(ps_own_lane(PS_W), PS_LANE_B);
    CHECK_INT(ps_kind_lane(PS_F), PS_LANE_F);
    CHECK_INT(ps_kind_lane(PS_B), PS_LANE_B);
    CHECK_INT(ps_kind_lane(PS_I), PS_LANE_B);
    CHECK_INT(ps_kind_lane(PS_W), PS_LANE_W);
    CHECK_INT(ps_kind_lane(PS_RECV_B), PS_LANE_RECV_B);
}

static void test_index(void)
{
    ps_schedule s = two_ranks(ONE_F_ONE_B);
    ps_index index;
    ps_fault fault;
    CHECK_EVERY_ALLOC(ps_index_init(&index, &s, &fault));
    CHECK_INT(index.cells, 4);
    CHECK_INT(index.lanes, 2);
    CHECK_INT(index.kinds, 1 << PS_F | 1 << PS_B);
    CHECK_INT(ps_index_at(&index, PS_LANE_F, 3), 6);
    CHECK_INT(ps_index_at(&index, PS_LANE_B, 0), 2);
    CHECK_INT(ps_index_at(&index, PS_LANE_W, 0), -1);
    CHECK(index.place.cell_rank == NULL);
    CHECK_INT(ps_place_rank(&index.place, 1, 3), 1);
    ps_index_free(&index);
    ps_index_free(&index);
}

static void test_stage_on_two_ranks(void)
{
    static const ps_op ops[] = {OP(PS_F, 0, 0), OP(PS_F, 1, 1), OP(PS_F, 0, 1), OP(PS_F, 1, 0)};
    static const int64_t offsets[] = {0, 2, 4};
    ps_schedule s = {ops, offsets, 2, 2, 2};
    ps_index index;
    ps_fault fault;
    CHECK_EVERY_ALLOC(ps_index_init(&index, &s, &fault));
    CHECK_INT(ps_place_rank(&index.place, 0, 0), 0);
    CHECK_INT(ps_place_rank(&index.place, 0, 1), 1);
    CHECK_INT(ps_place_rank(&index.place, 1, 2), 1);
    CHECK_INT(ps_place_rank(&index.place, 1, 3), 0);
    ps_index_free(&index);
}

static void test_rank_of_a_position(void)
{
    static const int64_t offsets[] = {0, 0, 2, 2, 5};
    ps_schedule s = {NULL, offsets, 4, 1, 5};
    CHECK_INT(ps_schedule_rank(&s, 0), 1);
    CHECK_INT(ps_schedule_rank(&s, 1), 1);
    CHECK_INT(ps_schedule_rank(&s, 2), 3);
    CHECK_INT(ps_schedule_rank(&s, 4), 3);
}

static ps_status index_of_one(ps_op op, int32_t num_stages, int32_t num_microbatches,
                              ps_fault *fault)
{
    static const int64_t offsets[] = {0, 1};
    ps_schedule s = {&op, offsets, 1, num_stages, num_microbatches};
    ps_index index;
    ps_status status = ps_index_init(&index, &s, fault);
    if (status == PS_OK)
        ps_index_free(&index);
    return status;
}

static void test_ranges(void)
{
    static const ps_op bad[] = {
        OP(PS_F, 1, 0),       OP(PS_F, -1, 0),        OP(PS_F, 0, 1),
        OP(PS_F, 0, -1),      OP(PS_NUM_KINDS, 0, 0), OP(-1, 0, 0),
        OP(PS_UNSHARD, 0, 0), OP(PS_F, INT32_MIN, 0), OP(INT16_MIN, 0, 0),
    };
    ps_fault fault;
    for (int64_t i = 0; i < COUNT(bad); i++) {
        CHECK_INT(index_of_one(bad[i], 1, 1, &fault), PS_ERR_OP_RANGE);
        CHECK_INT(fault.rank, 0);
        CHECK_INT(fault.position, 0);
    }
    CHECK_INT(index_of_one((ps_op)PAIRED(PS_F, 0, 0), 1, 1, &fault), PS_ERR_OP_PAIR);
    CHECK_INT(index_of_one((ps_op){0, 0, PS_F, 2}, 1, 1, &fault), PS_ERR_OP_RANGE);
    CHECK_INT(index_of_one((ps_op)OP(PS_F, 0, 0), 1, 1, &fault), PS_OK);
}

/* Numbers of any size take no more memory than the ops. */
static void test_huge_numbers(void)
{
    ps_fault fault;
    ps_op op = OP(PS_F, INT32_MAX - 1, INT32_MAX - 1);
    CHECK_INT(index_of_one(op, INT32_MAX, INT32_MAX, &fault), PS_ERR_OP_MISSING);
    CHECK_INT(fault.position, -1);
    CHECK_INT(fault.op.stage, 0);
    CHECK_INT(fault.op.microbatch, 0);
}

static void test_repeated(void)
{
    static const ps_op ops[] = {OP(PS_UNSHARD, 0, -1), OP(PS_UNSHARD, 0, -1), OP(PS_F, 0, 0),
                                OP(PS_B, 0, 0), OP(PS_F, 0, 0)};
    static const int64_t offsets[] = {0, 5};
    ps_schedule s = {ops, offsets, 1, 1, 1};
    ps_index index;
    ps_fault fault;
    CHECK_INT(ps_index_init(&index, &s, &fault), PS_ERR_OP_REPEATED);
    CHECK_INT(fault.position, 4);
    CHECK_INT(fault.other_position, 2);
    CHECK_INT(ps_schedule_unique(&s, &fault), PS_ERR_OP_REPEATED);
    static const int64_t four[] = {0, 4};
    ps_schedule without = {ops, four, 1, 1, 1};
    CHECK_EVERY_ALLOC(ps_schedule_unique(&without, &fault));
}

int main(void)
{
    RUN(test_dependency_rule);
    RUN(test_index);
    RUN(test_stage_on_two_ranks);
    RUN(test_rank_of_a_position);
    RUN(test_ranges);
    RUN(test_huge_numbers);
    RUN(test_repeated);
    return ctest_done();
}
