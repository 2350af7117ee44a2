/* The registry and what its checks refuse. The ops themselves: test_families, and the
 * Python tests against the slow twin. */
#include "ctest.h"
#include "ps_generate.h"

/* The status of a config with up to two options set; *fault says why. */
static ps_status checked(const char *name, int32_t p, int32_t m, int32_t first, int32_t second,
                         ps_rule_fault *fault)
{
    ps_config config;
    const ps_family *family = ps_family_find(name);
    ps_config_init(family, p, m, &config);
    if (first != PS_AUTO)
        config.option[0] = first;
    if (second != PS_AUTO)
        config.option[1] = second;
    *fault = (ps_rule_fault){0};
    return ps_config_check(family, &config, fault);
}

static void test_registry(void)
{
    CHECK(ps_family_count() > 0);
    CHECK(ps_family_at(-1) == NULL);
    CHECK(ps_family_at(ps_family_count()) == NULL);
    CHECK(ps_family_find("") == NULL);
    CHECK(ps_family_find("1f1") == NULL);
    for (int32_t i = 0; i < ps_family_count(); i++) {
        const ps_family *family = ps_family_at(i);
        CHECK(ps_family_find(family->name) == family);
        CHECK(family->num_options <= PS_MAX_OPTIONS);
        CHECK(family->length != NULL && family->fill != NULL);
    }
}

static void test_minima(void)
{
    ps_rule_fault fault;
    CHECK_INT(checked("1f1b", 0, 1, PS_AUTO, PS_AUTO, &fault), PS_ERR_TOO_SMALL);
    CHECK(strcmp(fault.argument, "p") == 0);
    CHECK_INT(fault.nearest, 1);
    CHECK_INT(checked("1f1b", 1, -5, PS_AUTO, PS_AUTO, &fault), PS_ERR_TOO_SMALL);
    CHECK(strcmp(fault.argument, "m") == 0);
    CHECK_INT(fault.value, -5);
    CHECK_INT(checked("interleaved-1f1b", 2, 2, 0, PS_AUTO, &fault), PS_ERR_TOO_SMALL);
    CHECK(strcmp(fault.argument, "v") == 0);
    CHECK_INT(checked("interleaved-1f1b", 2, 2, 1, 0, &fault), PS_ERR_TOO_SMALL);
    CHECK(strcmp(fault.argument, "group") == 0);
    CHECK_INT(checked("gpipe", 2, 2, 1, PS_AUTO, &fault), PS_OK);
    CHECK_INT(checked("gpipe", 2, 2, 2, PS_AUTO, &fault), PS_ERR_UNKNOWN);
    CHECK_INT(checked("gpipe", 2, 2, -1, PS_AUTO, &fault), PS_ERR_UNKNOWN);
}

static void test_rules(void)
{
    ps_rule_fault fault;
    CHECK_INT(checked("zb-h2", 4, 6, PS_AUTO, PS_AUTO, &fault), PS_ERR_RULE);
    CHECK_INT(fault.nearest, 7);
    CHECK_INT(checked("zb-h2", 4, 7, PS_AUTO, PS_AUTO, &fault), PS_OK);
    /* 2p - 1 does not fit an int32 here. */
    CHECK_INT(checked("zb-h2", INT32_MAX, INT32_MAX, PS_AUTO, PS_AUTO, &fault), PS_ERR_RULE);
    CHECK_INT(fault.nearest, 2 * (int64_t)INT32_MAX - 1);
}

static void test_the_nearest_m_of_torch(void)
{
    const ps_family *family = ps_family_find("interleaved-1f1b");
    for (int32_t p = 1; p <= 7; p++)
        for (int32_t m = 1; m <= 40; m++) {
            ps_config config;
            ps_rule_fault fault = {0};
            ps_config_init(family, p, m, &config);
            config.option[2] = 1; /* rule: torch */
            if (ps_config_check(family, &config, &fault) == PS_OK) {
                CHECK_INT(config.option[1], m < p ? m : m / (m / p));
                continue;
            }
            CHECK(fault.nearest >= 1 && fault.nearest != m);
            ps_config_init(family, p, (int32_t)fault.nearest, &config);
            config.option[2] = 1;
            CHECK_INT(ps_config_check(family, &config, &fault), PS_OK);
        }
}

static void test_sizes(void)
{
    const ps_family *family = ps_family_find("looped-bfs");
    ps_config config;
    int32_t stages = 0;
    int32_t microbatches = 0;
    ps_config_init(family, 3, 5, &config);
    config.option[0] = 4;
    CHECK_INT(ps_family_size(family, &config, &stages, &microbatches), PS_OK);
    CHECK_INT(stages, 12);
    CHECK_INT(microbatches, 5);
    config.option[0] = INT32_MAX; /* more stages than an id can name */
    CHECK_INT(ps_family_size(family, &config, &stages, &microbatches), PS_ERR_OVERFLOW);
    ps_config_init(family, INT32_MAX, INT32_MAX, &config);
    config.option[0] = 1; /* more ops than there are addresses */
    CHECK_INT(ps_family_size(family, &config, &stages, &microbatches), PS_ERR_OVERFLOW);

    int64_t offsets[2];
    ps_config_init(family, 1, INT32_MAX, &config);
    config.option[0] = INT32_MAX;
    CHECK_INT(ps_family_size(family, &config, &stages, &microbatches), PS_OK);
    CHECK_INT(ps_family_offsets(family, &config, offsets), PS_ERR_OVERFLOW);

    family = ps_family_find("seq-1f1b");
    ps_config_init(family, 2, 3, &config);
    config.option[0] = 4;
    CHECK_INT(ps_family_size(family, &config, &stages, &microbatches), PS_OK);
    CHECK_INT(stages, 2);
    CHECK_INT(microbatches, 12);
    config.option[0] = INT32_MAX;
    CHECK_INT(ps_family_size(family, &config, &stages, &microbatches), PS_ERR_OVERFLOW);
}

int main(void)
{
    RUN(test_registry);
    RUN(test_minima);
    RUN(test_rules);
    RUN(test_the_nearest_m_of_torch);
    RUN(test_sizes);
    return ctest_done();
}
