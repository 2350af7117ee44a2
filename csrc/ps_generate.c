#include "ps_generate.h"

#include <string.h>

#include "generate/families.h"

/* In the order in which they should be shown. */
static const ps_family *const families[] = {
    &ps_family_naive,      &ps_family_forward,    &ps_family_gpipe,
    &ps_family_1f1b,       &ps_family_eager_1f1b, &ps_family_interleaved_1f1b,
    &ps_family_looped_bfs, &ps_family_zb_h1,      &ps_family_zb_h2,
    &ps_family_zb_1p,      &ps_family_zb_v,       &ps_family_v_half,
    &ps_family_v_min,      &ps_family_dualpipe,   &ps_family_dualpipe_v,
    &ps_family_chimera,    &ps_family_hanayo,     &ps_family_pipedream,
    &ps_family_seq_1f1b,
};

enum { NUM_FAMILIES = sizeof families / sizeof families[0] };

int32_t ps_family_count(void)
{
    return NUM_FAMILIES;
}

const ps_family *ps_family_at(int32_t index)
{
    return index >= 0 && index < NUM_FAMILIES ? families[index] : NULL;
}

const ps_family *ps_family_find(const char *name)
{
    for (int32_t i = 0; i < NUM_FAMILIES; i++)
        if (strcmp(families[i]->name, name) == 0)
            return families[i];
    return NULL;
}

void ps_config_init(const ps_family *family, int32_t p, int32_t m, ps_config *config)
{
    *config = (ps_config){.p = p, .m = m};
    for (int32_t i = 0; i < family->num_options; i++)
        config->option[i] = family->options[i].preset;
}

static ps_status check_minimum(const char *argument, int32_t value, int32_t minimum,
                               ps_rule_fault *fault)
{
    if (value >= minimum)
        return PS_OK;
    *fault = (ps_rule_fault){argument, value, NULL, NULL, minimum};
    return PS_ERR_TOO_SMALL;
}

static ps_status check_option(const ps_option *option, int32_t value, ps_rule_fault *fault)
{
    if (option->words == NULL)
        return value == PS_AUTO ? PS_OK
                                : check_minimum(option->name, value, option->minimum, fault);
    for (int32_t i = 0; option->words[i] != NULL; i++)
        if (i == value)
            return PS_OK;
    return PS_ERR_UNKNOWN;
}

ps_status ps_config_check(const ps_family *family, ps_config *config, ps_rule_fault *fault)
{
    ps_status status = check_minimum("p", config->p, 1, fault);
    if (status == PS_OK)
        status = check_minimum("m", config->m, 1, fault);
    for (int32_t i = 0; status == PS_OK && i < family->num_options; i++)
        status = check_option(&family->options[i], config->option[i], fault);
    if (status == PS_OK && family->check != NULL)
        status = family->check(config, fault);
    return status;
}

/* The largest number of ops whose bytes a pointer difference can still span. */
static const int64_t max_ops = (int64_t)(PTRDIFF_MAX / sizeof(ps_op));

ps_status ps_family_size(const ps_family *family, const ps_config *config, int32_t *num_stages,
                         int32_t *num_microbatches)
{
    int64_t stages = config->p;
    int64_t microbatches = config->m;
    int64_t least_ops;
    ps_status status = PS_OK;
    if (family->num_stages != NULL)
        status = family->num_stages(config, &stages);
    if (status == PS_OK && family->num_microbatches != NULL)
        status = family->num_microbatches(config, &microbatches);
    if (status != PS_OK)
        return status;
    if (stages > INT32_MAX || microbatches > INT32_MAX)
        return PS_ERR_OVERFLOW;
    status = ps_mul(config->p, microbatches, &least_ops);
    if (status != PS_OK)
        return status;
    if (least_ops > max_ops)
        return PS_ERR_OVERFLOW;
    *num_stages = (int32_t)stages;
    *num_microbatches = (int32_t)microbatches;
    return PS_OK;
}

ps_status ps_family_offsets(const ps_family *family, const ps_config *config, int64_t *offsets)
{
    int64_t total = 0;
    offsets[0] = 0;
    for (int32_t rank = 0; rank < config->p; rank++) {
        int64_t length;
        ps_status status = family->length(config, rank, &length);
        if (status == PS_OK)
            status = ps_add(total, length, &total);
        if (status != PS_OK)
            return status;
        if (total > max_ops)
            return PS_ERR_OVERFLOW;
        offsets[rank + 1] = total;
    }
    return PS_OK;
}

ps_status ps_family_fill(const ps_family *family, const ps_config *config,
                         const int64_t *offsets, ps_op *ops)
{
    return family->fill(config, offsets, ops);
}
