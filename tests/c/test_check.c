/* Legal schedules, one of each fault, and the cycle of a deadlock. */
#include "ctest.h"
#include "ps_check.h"
#include "schedules.h"

static ps_fault fault;
static ps_wait cycle[2];
static int32_t cycle_length;

static ps_status check(ps_schedule s, int blocking)
{
    return ps_check(&s, blocking, &fault, cycle, &cycle_length);
}

static void test_legal(void)
{
    CHECK_EVERY_ALLOC(check(two_ranks(ONE_F_ONE_B), 0));
    CHECK_INT(cycle_length, 0);
}

static void test_stage_on_two_ranks(void)
{
    static const ps_op ops[] = {
        OP(PS_F, 0, 0), OP(PS_F, 1, 1), OP(PS_B, 1, 1), OP(PS_B, 0, 0),
        OP(PS_F, 0, 1), OP(PS_F, 1, 0), OP(PS_B, 1, 0), OP(PS_B, 0, 1),
    };
    CHECK_EVERY_ALLOC(check(two_ranks(ops), 0));
}

static void expect(ps_op change, int64_t at, ps_status status, int32_t rank, int64_t position)
{
    ps_op ops[8];
    memcpy(ops, ONE_F_ONE_B, sizeof ops);
    ops[at] = change;
    CHECK_INT(check(two_ranks(ops), 0), status);
    CHECK_INT(fault.rank, rank);
    CHECK_INT(fault.position, position);
    CHECK_INT(cycle_length, 0);
}

static void test_faults(void)
{
    expect((ps_op)OP(PS_F, 2, 0), 0, PS_ERR_OP_RANGE, 0, 0);
    expect((ps_op)OP(PS_F, 0, 0), 1, PS_ERR_OP_REPEATED, 0, 1);
    expect((ps_op)OP(PS_UNSHARD, 0, -1), 1, PS_ERR_OP_MISSING, -1, -1);
    expect((ps_op)OP(PS_UNSHARD, 0, -1), 2, PS_ERR_OP_MISSING, 0, -1);
    expect((ps_op)OP(PS_I, 0, 0), 2, PS_ERR_OP_SPLIT, 0, 2);
    expect((ps_op)OP(PS_W, 0, 0), 2, PS_ERR_OP_SPLIT, 0, 2);
    expect((ps_op)PAIRED(PS_F, 0, 0), 0, PS_ERR_OP_PAIR, 0, 0);
    expect((ps_op)PAIRED(PS_B, 0, 1), 3, PS_ERR_OP_PAIR, 0, 3);
}

static void test_place_and_order(void)
{
    static const ps_op swapped[] = {
        OP(PS_F, 0, 0), OP(PS_F, 0, 1), OP(PS_B, 1, 0), OP(PS_B, 0, 1),
        OP(PS_F, 1, 0), OP(PS_B, 0, 0), OP(PS_F, 1, 1), OP(PS_B, 1, 1),
    };
    CHECK_INT(check(two_ranks(swapped), 0), PS_ERR_OP_PLACE);
    static const ps_op early[] = {
        OP(PS_F, 0, 0), OP(PS_F, 0, 1), OP(PS_B, 0, 0), OP(PS_B, 0, 1),
        OP(PS_F, 1, 0), OP(PS_B, 1, 1), OP(PS_F, 1, 1), OP(PS_B, 1, 0),
    };
    CHECK_INT(check(two_ranks(early), 0), PS_ERR_OP_ORDER);
    CHECK_INT(fault.rank, 1);
    CHECK_INT(fault.position, 1);
    CHECK_INT(fault.other_position, 2);
}

static ps_status check_waiting(int blocking)
{
    static const ps_op ops[] = {
        OP(PS_F, 0, 0), OP(PS_B, 0, 0), OP(PS_F, 0, 1), OP(PS_B, 0, 1),
        OP(PS_F, 1, 1), OP(PS_B, 1, 1), OP(PS_F, 1, 0), OP(PS_B, 1, 0),
    };
    ps_status status = check(two_ranks(ops), blocking);
    return status == PS_ERR_DEADLOCK ? PS_OK : status; /* what it should be */
}

static void test_deadlock(void)
{
    CHECK_EVERY_ALLOC(check_waiting(0));
    CHECK_INT(cycle_length, 2);
    CHECK_INT(cycle[0].rank, 0);
    CHECK_INT(cycle[0].position, 1);
    CHECK_INT(cycle[0].awaited_position, 3);
    CHECK_INT(cycle[1].rank, 1);
    CHECK_INT(cycle[1].position, 0);
    CHECK_INT(cycle[1].awaited_position, 2);
    CHECK_INT(fault.rank, 0);
    CHECK_INT(fault.other_rank, 1);
}

/* Each rank sends, then receives: fine if sends are buffered, else not. */
static ps_status check_exchange(int blocking, ps_status expected)
{
    static const ps_op ops[] = {
        OP(PS_F, 0, 0), OP(PS_SEND_F, 0, 0), OP(PS_RECV_F, 1, 1), OP(PS_F, 1, 1),
        OP(PS_F, 0, 1), OP(PS_SEND_F, 0, 1), OP(PS_RECV_F, 1, 0), OP(PS_F, 1, 0),
    };
    ps_status status = check(two_ranks(ops), blocking);
    return status == expected ? PS_OK : status;
}

static void test_transfers(void)
{
    CHECK_EVERY_ALLOC(check_exchange(0, PS_OK));
    CHECK_EVERY_ALLOC(check_exchange(1, PS_ERR_DEADLOCK));
    CHECK_INT(cycle_length, 2);
    CHECK_INT(cycle[0].op.kind, PS_SEND_F);
    CHECK_INT(cycle[0].awaited.kind, PS_RECV_F);
    static const ps_op ops[] = {OP(PS_F, 0, 0), OP(PS_SEND_F, 0, 0), OP(PS_F, 1, 0)};
    static const int64_t offsets[] = {0, 2, 3};
    CHECK_INT(check((ps_schedule){ops, offsets, 2, 2, 1}, 0), PS_ERR_OP_TRANSFER);
    CHECK_INT(fault.op.kind, PS_RECV_F);
    CHECK_INT(fault.rank, 1);
    CHECK_INT(fault.position, -1);
}

int main(void)
{
    RUN(test_legal);
    RUN(test_stage_on_two_ranks);
    RUN(test_faults);
    RUN(test_place_and_order);
    RUN(test_deadlock);
    RUN(test_transfers);
    return ctest_done();
}
