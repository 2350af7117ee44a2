/* The simulator: times and memory worked out by hand, what it says of schedules that
 * were not checked, and that no scratch is lost. */
#include "ctest.h"
#include "ps_generate.h"
#include "ps_simulate.h"

enum { MAX_RANKS = 8, MAX_OPS = 512 };

/* Everything that a run gives, for small schedules. */
typedef struct outcome {
    double end[MAX_OPS];
    double busy[MAX_RANKS], first[MAX_RANKS], last[MAX_RANKS];
    double fixed[MAX_RANKS], peak_memory[MAX_RANKS];
    int64_t peak_activations[MAX_RANKS];
} outcome;

static ps_times times_of(outcome *into)
{
    ps_times times = {into->end,   into->busy,        into->first,           into->last,
                      into->fixed, into->peak_memory, into->peak_activations};
    return times;
}

static ps_status run_once(const ps_schedule *schedule, const ps_costs *costs, outcome *into)
{
    ps_simulator *sim;
    ps_times times = times_of(into);
    ps_status status = ps_simulator_new(schedule, &sim);
    if (status == PS_OK)
        status = ps_simulator_run(sim, costs, &times);
    ps_simulator_free(sim);
    return status;
}

/* Two ranks, a stage each, two micro-batches: F F B B and F B F B. */
static const ps_op TWO[] = {{0, 0, PS_F, 0}, {0, 1, PS_F, 0}, {0, 0, PS_B, 0}, {0, 1, PS_B, 0},
                            {1, 0, PS_F, 0}, {1, 0, PS_B, 0}, {1, 1, PS_F, 0}, {1, 1, PS_B, 0}};
static const int64_t TWO_OFFSETS[] = {0, 4, 8};
static const ps_schedule TWO_RANKS = {TWO, TWO_OFFSETS, 2, 2, 2};

static const double TIMES[] = {1, 1, 2, 2, 1, 1, 1, 1}; /* F, B, I, W of two stages */
static const double FREE[] = {0, 0, 0, 0};
static const double SLOW[] = {5, 0, 3, 0};           /* onward, back */
static const double MEMORY[] = {1, 10, 1, 10, 0, 7}; /* whole, kept, static */
static const double SCALE[] = {1, 2};

static void test_by_hand(void)
{
    ps_costs costs = {.times = TIMES, .transfers = FREE, .memory = MEMORY};
    outcome got;
    CHECK_INT(run_once(&TWO_RANKS, &costs, &got), PS_OK);
    static const int expected[] = {1, 2, 6, 9, 2, 4, 5, 7};
    for (int i = 0; i < 8; i++)
        CHECK(got.end[i] == expected[i]);
    CHECK(got.busy[0] == 6 && got.busy[1] == 6);
    CHECK(got.first[0] == 0 && got.first[1] == 1);
    CHECK(got.last[0] == 9 && got.last[1] == 7);
    CHECK(got.fixed[0] == 0 && got.fixed[1] == 7);
    CHECK(got.peak_memory[0] == 2 && got.peak_memory[1] == 17);
    CHECK_INT(got.peak_activations[0], 2);
    CHECK_INT(got.peak_activations[1], 1);
}

/* On a serial link the second transfer leaves when the first is over. */
static void test_links(void)
{
    ps_costs costs = {.times = TIMES, .transfers = SLOW, .memory = MEMORY, .serial = 1};
    ps_simulator *sim;
    outcome got;
    ps_times times = times_of(&got);
    double start[8];
    int64_t cause[8];
    CHECK_INT(ps_simulator_new(&TWO_RANKS, &sim), PS_OK);
    for (int again = 0; again < 2; again++) { /* a run leaves nothing for the next */
        CHECK_INT(ps_simulator_run(sim, &costs, &times), PS_OK);
        CHECK(got.end[4] == 7 && got.end[6] == 12 && got.end[3] == 19);
        CHECK_INT(ps_simulator_look_back(sim, &costs, got.end, start, cause), PS_OK);
        CHECK(start[4] == 6 && start[6] == 11);
        CHECK_INT(cause[4], 0);
        CHECK_INT(cause[6], 0); /* it waited for the link, which op 0 had taken */
        CHECK_INT(cause[0], -1);
    }
    costs.serial = 0;
    CHECK_INT(ps_simulator_run(sim, &costs, &times), PS_OK);
    CHECK(got.end[6] == 10);
    costs.scale = SCALE;
    CHECK_INT(ps_simulator_run(sim, &costs, &times), PS_OK);
    CHECK(got.end[1] == 3 && got.end[6] == 15);
    times.end = NULL;
    CHECK_INT(ps_simulator_run(sim, &costs, &times), PS_OK);
    ps_simulator_free(sim);
    ps_simulator_free(NULL);
}

/* Whatever stands in it, a schedule gives a status. */
static void test_not_checked(void)
{
    ps_costs costs = {.times = TIMES, .transfers = SLOW, .memory = MEMORY};
    outcome got;
    ps_op ops[8];
    ps_schedule schedule = TWO_RANKS;
    schedule.ops = ops;
    for (int serial = 0; serial < 2; serial++) {
        costs.serial = serial;
        for (int at = 0; at < 8; at++) {
            for (int16_t kind = -1; kind <= PS_NUM_KINDS; kind++) {
                for (int32_t stage = -1; stage <= 2; stage++) {
                    memcpy(ops, TWO, sizeof ops);
                    ops[at].kind = kind;
                    ops[at].stage = stage;
                    ps_status status = run_once(&schedule, &costs, &got);
                    CHECK(status == PS_OK || status == PS_ERR_DEADLOCK ||
                          status == PS_ERR_OP_RANGE || status == PS_ERR_OP_MISSING);
                }
            }
            memcpy(ops, TWO, sizeof ops);
            ops[at].fuse = 1;
            CHECK(run_once(&schedule, &costs, &got) != PS_ERR_OVERFLOW);
        }
    }
    /* Each rank waits for the other. */
    memcpy(ops, TWO, sizeof ops);
    ops[0] = TWO[2];
    ops[2] = TWO[0];
    CHECK_INT(run_once(&schedule, &costs, &got), PS_ERR_DEADLOCK);
}

static void test_too_large(void)
{
    static const double huge[] = {1e308, 1e308, 1e308, 1e308, 0, 0, 0, 0};
    static const double heavy[] = {1e308, 1e308, 0, 0, 0, 0};
    ps_costs costs = {.times = huge, .transfers = FREE, .memory = MEMORY};
    outcome got;
    CHECK_INT(run_once(&TWO_RANKS, &costs, &got), PS_ERR_OVERFLOW);
    costs.times = TIMES;
    costs.memory = heavy;
    CHECK_INT(run_once(&TWO_RANKS, &costs, &got), PS_ERR_OVERFLOW);
    ps_schedule endless = TWO_RANKS;
    endless.num_stages = INT32_MAX;
    endless.num_microbatches = INT32_MAX;
    ps_simulator *sim;
    CHECK(ps_simulator_new(&endless, &sim) != PS_OK);
    CHECK(sim == NULL);
}

/* A bidirectional schedule with slow serial links takes every allocation there is. */
static ps_status run_and_look_back(const ps_schedule *schedule, const ps_costs *costs)
{
    ps_simulator *sim;
    outcome got;
    ps_times times = times_of(&got);
    ps_status status = ps_simulator_new(schedule, &sim);
    if (status == PS_OK)
        status = ps_simulator_run(sim, costs, &times);
    if (status == PS_OK) {
        double start[MAX_OPS];
        int64_t cause[MAX_OPS];
        status = ps_simulator_look_back(sim, costs, got.end, start, cause);
    }
    ps_simulator_free(sim);
    return status;
}

static void test_scratch_that_cannot_be_had(void)
{
    static const char *const names[] = {"chimera", "1f1b"};
    for (int i = 0; i < 2; i++) {
        const ps_family *family = ps_family_find(names[i]);
        ps_config config;
        ps_rule_fault fault = {0};
        ps_op ops[MAX_OPS];
        int64_t offsets[MAX_RANKS + 1];
        ps_schedule schedule = {.ops = ops, .offsets = offsets, .p = 8};
        ps_config_init(family, 8, 8, &config);
        CHECK_INT(ps_config_check(family, &config, &fault), PS_OK);
        CHECK_INT(
            ps_family_size(family, &config, &schedule.num_stages, &schedule.num_microbatches),
            PS_OK);
        CHECK_INT(ps_family_offsets(family, &config, offsets), PS_OK);
        CHECK(offsets[8] <= MAX_OPS);
        CHECK_INT(ps_family_fill(family, &config, offsets, ops), PS_OK);
        double times[32], transfers[16], memory[24];
        for (int k = 0; k < 32; k++)
            times[k] = 1 + k % 3;
        for (int k = 0; k < 16; k++)
            transfers[k] = 2 + k % 2;
        for (int k = 0; k < 24; k++)
            memory[k] = k;
        ps_costs costs = {
            .times = times, .transfers = transfers, .memory = memory, .serial = 1};
        CHECK_EVERY_ALLOC(run_and_look_back(&schedule, &costs));
    }
}

int main(void)
{
    RUN(test_by_hand);
    RUN(test_links);
    RUN(test_not_checked);
    RUN(test_too_large);
    RUN(test_scratch_that_cannot_be_had);
    return ctest_done();
}
