/* Interleaved 1F1B: 1F1B over v chunks a rank, after Megatron's or torch's rule.
 *
 * The two rules share the order and differ in the size of a group of micro-batches.
 * Torch cuts m into max(1, m / p) equal rounds. Megatron takes any group of p to m
 * micro-batches that leaves no remainder below p. A group that breaks this is made all
 * the same where the caller asks for it: it costs a larger bubble, and for some sizes
 * the ranks wait in a circle, which only the whole order shows and is left to a check
 * of the ops. The default is the smallest group that keeps Megatron's rule: p itself
 * where p divides m, and all of m where m < p.
 */
#include "families.h"
#include "order.h"

enum { V, GROUP, RULE };
enum { MEGATRON, TORCH };

static int32_t torch_rounds(int64_t m, int32_t p)
{
    return m < p ? 1 : (int32_t)(m / p);
}

/* The m nearest to the one given that torch's rule takes; multiples of p always are.
 * With a group given: that makes this group, which are its multiples k * group with
 * k = max(1, k * group / p); -1: no m does. */
static int64_t nearest_m(const ps_config *config)
{
    const int64_t p = config->p;
    const int64_t group = config->option[GROUP];
    if (config->option[GROUP] != PS_AUTO) {
        if (group >= 2 * p)
            return -1;
        int64_t k = (config->m + group / 2) / group;
        const int64_t most = group < p ? 1 : group == p ? k : (p - 1) / (group - p);
        k = k < most ? k : most;
        return group * (k > 1 ? k : 1);
    }
    for (int64_t distance = 1;; distance++) {
        const int64_t below = config->m - distance;
        const int64_t above = config->m + distance;
        if (below % torch_rounds(below, config->p) == 0)
            return below;
        if (above % torch_rounds(above, config->p) == 0)
            return above;
    }
}

static ps_status check(ps_config *config, ps_rule_fault *fault)
{
    int32_t *group = &config->option[GROUP];
    if (config->option[RULE] == MEGATRON) {
        if (*group == PS_AUTO)
            *group = ps_default_group(config);
        return PS_OK;
    }
    const int32_t rounds = torch_rounds(config->m, config->p);
    if (config->m % rounds != 0) {
        *fault = (ps_rule_fault){
            "m", config->m, "torch's rule needs m divisible by its max(1, m // p) rounds",
            *group == PS_AUTO ? "take rule=\"megatron\", which takes any m"
                              : "take rule=\"megatron\" without a group, which takes any m",
            nearest_m(config)};
        return PS_ERR_RULE;
    }
    if (*group != PS_AUTO && *group != config->m / rounds) {
        *fault = (ps_rule_fault){
            "group", *group, "torch's rule makes the group m / max(1, m // p) itself",
            "take rule=\"megatron\", which takes any group that keeps its rule",
            config->m / rounds};
        return PS_ERR_RULE;
    }
    *group = config->m / rounds;
    return PS_OK;
}

static int keeps_rule(const ps_config *config, int64_t group)
{
    const int64_t rest = config->m % group;
    return group == config->m || (group >= config->p && (rest == 0 || rest >= config->p));
}

/* All of m keeps the rule, so that this ends. */
static int64_t nearest_group(const ps_config *config, int64_t group)
{
    for (int64_t distance = 1;; distance++) {
        if (distance < group && keeps_rule(config, group - distance))
            return group - distance;
        if (keeps_rule(config, group + distance))
            return group + distance;
    }
}

/* A group that keeps Megatron's rule never does. */
static int may_deadlock(const ps_config *config, ps_rule_fault *fault)
{
    const int64_t group = config->option[GROUP];
    if (config->option[V] == 1 || keeps_rule(config, group))
        return 0;
    *fault = (ps_rule_fault){"group", group,
                             "a group must be at least p and leave no remainder of m below p, "
                             "or be all of m",
                             NULL, nearest_group(config, group)};
    return 1;
}

static ps_status num_stages(const ps_config *config, int64_t *out)
{
    return ps_mul(config->p, config->option[V], out);
}

static ps_status length(const ps_config *config, int32_t rank, int64_t *out)
{
    (void)rank;
    return ps_length_m_v(config, 2, config->option[V], out);
}

static ps_status fill(const ps_config *config, const int64_t *offsets, ps_op *ops)
{
    const int32_t v = config->option[V];
    const int32_t group = config->option[GROUP];
    for (int32_t rank = 0; rank < config->p; rank++) {
        const int64_t hops = config->p - 1 - rank;
        /* With one chunk nothing interleaves, and one forward a hop is enough. */
        const int64_t warmup = v == 1 ? hops : 2 * hops + ((int64_t)v - 1) * group;
        ps_order_interleaved(ops + offsets[rank], rank, config, v, group, warmup);
    }
    return PS_OK;
}

static const char *const rule_words[] = {"megatron", "torch", NULL};

static const ps_option options[] = {
    [V] = {"v", 2, 1, NULL, "stages a rank (virtual stages)"},
    [GROUP] = {"group", PS_AUTO, 1, NULL,
               "micro-batches that pass a chunk before the next chunk starts; by default the "
               "smallest "
               "of p or more that leaves no remainder of m below p"},
    [RULE] = {"rule", MEGATRON, 0, rule_words,
              "megatron: groups as given, the last may be short; torch: equal rounds of "
              "m / max(1, m // p)"},
};

const ps_family ps_family_interleaved_1f1b = {
    .name = "interleaved-1f1b",
    .title = "interleaved 1F1B",
    .summary =
        "1F1B over v chunks a rank: groups of micro-batches pass chunk after chunk, which "
        "divides the bubble by v and multiplies transfers by v. v = 1 is 1F1B.",
    .constraints =
        "a group below p, or one that leaves a remainder of m below p, costs a larger "
        "bubble or deadlocks and is then refused; rule=\"torch\" needs m divisible by "
        "max(1, m // p)",
    .placement = "loop",
    .source = "Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters "
              "Using Megatron-LM, arXiv 2104.04473",
    .options = options,
    .num_options = 3,
    .check = check,
    .may_deadlock = may_deadlock,
    .num_stages = num_stages,
    .length = length,
    .fill = fill,
};
