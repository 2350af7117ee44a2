/* Every family fills exactly its room, for small sizes; those that take scratch give it
 * back and report the allocation that failed. */
#include "ctest.h"
#include "ps_generate.h"

enum { GUARD = 77 };

/* Offsets of a config, or NULL where the family's definition forbids it. */
static int64_t *offsets_of(const ps_family *family, ps_config *config)
{
    ps_rule_fault fault = {0};
    ps_status status = ps_config_check(family, config, &fault);
    if (status == PS_ERR_RULE) {
        CHECK(fault.argument != NULL && fault.rule != NULL);
        CHECK(fault.instead != NULL || fault.nearest >= 0);
        return NULL;
    }
    CHECK_INT(status, PS_OK);
    int32_t num_stages = 0, num_microbatches = 0;
    CHECK_INT(ps_family_size(family, config, &num_stages, &num_microbatches), PS_OK);
    void *memory = NULL;
    CHECK_INT(ps_alloc((int64_t)config->p + 1, sizeof(int64_t), &memory), PS_OK);
    CHECK_INT(ps_family_offsets(family, config, memory), PS_OK);
    return memory;
}

static void check_room(const ps_family *family, int32_t p, int32_t m)
{
    ps_config config;
    ps_config_init(family, p, m, &config);
    int64_t *offsets = offsets_of(family, &config);
    if (offsets == NULL)
        return;
    /* All that can be written is written, and nothing beyond: an op left out keeps the
     * guard, valgrind sees what lies outside the block. */
    void *memory = NULL;
    CHECK_INT(ps_alloc(offsets[p], sizeof(ps_op), &memory), PS_OK);
    ps_op *ops = memory;
    memset(ops, GUARD, (size_t)offsets[p] * sizeof *ops);
    CHECK_INT(ps_family_fill(family, &config, offsets, ops), PS_OK);
    int64_t wrong = 0;
    for (int64_t i = 0; i < offsets[p]; i++)
        wrong += ops[i].kind < PS_F || ops[i].kind > PS_W || (ops[i].fuse & ~1) != 0;
    CHECK_INT(wrong, 0);
    free(ops);
    free(offsets);
}

static void test_room(void)
{
    for (int32_t i = 0; i < ps_family_count(); i++)
        for (int32_t p = 1; p <= 6; p++)
            for (int32_t m = 1; m <= 13; m++)
                check_room(ps_family_at(i), p, m);
}

static void test_scratch_that_cannot_be_had(void)
{
    for (int32_t i = 0; i < ps_family_count(); i++) {
        const ps_family *family = ps_family_at(i);
        ps_config config;
        ps_config_init(family, 4, 8, &config);
        int64_t *offsets = offsets_of(family, &config);
        if (offsets == NULL)
            continue;
        ps_op *ops = calloc((size_t)offsets[4], sizeof *ops);
        CHECK_EVERY_ALLOC(ps_family_fill(family, &config, offsets, ops));
        free(ops);
        free(offsets);
    }
}

static void test_sizes_that_cannot_be_addressed(void)
{
    static const char *const names[] = {"v-half", "v-min"};
    for (int i = 0; i < 2; i++) {
        const ps_family *family = ps_family_find(names[i]);
        ps_config config;
        ps_config_init(family, 1, INT32_MAX, &config);
        int64_t offsets[2];
        CHECK_INT(ps_family_offsets(family, &config, offsets), PS_ERR_OVERFLOW);
    }
}

int main(void)
{
    RUN(test_room);
    RUN(test_scratch_that_cannot_be_had);
    RUN(test_sizes_that_cannot_be_addressed);
    return ctest_done();
}
