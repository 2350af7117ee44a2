/* Making the published schedules: one registry, one file a family.
 *
 * A family is described by one ps_family record at the end of its file in
 * generate/; ps_generate.c lists them all. To make a schedule: fill a
 * ps_config, call ps_config_check (which applies the family's own rules), take
 * the shape, allocate, call ps_family_fill.
 */
#ifndef PS_GENERATE_H
#define PS_GENERATE_H

#include "ps_schedule.h"

enum { PS_MAX_OPTIONS = 4 };

/* An option of a family: a whole number, or one of a few words. */
typedef struct ps_option {
    const char *name;
    int32_t preset;  /* the default; PS_AUTO where it depends on p and m */
    int32_t minimum; /* numbers only */
    const char *const
        *words;       /* NULL-terminated; the option's value is the index. NULL: a number */
    const char *text; /* one line for people */
} ps_option;

#define PS_AUTO INT32_MIN

/* What the caller asks for. option[i] answers family->options[i]. */
typedef struct ps_config {
    int32_t p; /* ranks */
    int32_t m; /* micro-batches */
    int32_t option[PS_MAX_OPTIONS];
} ps_config;

/* Why a config is refused; it reads "<rule>, got <argument>=<value>; <argument>=<nearest>
 * works, or <instead>". All strings are static. */
typedef struct ps_rule_fault {
    const char *argument; /* "p", "m" or an option's name */
    int64_t value;
    const char *rule;    /* "dualpipe needs m >= 2p" */
    const char *instead; /* text, may be NULL: "take 1f1b, which has no such rule" */
    int64_t nearest;     /* the nearest value of the argument that works, or -1 */
} ps_rule_fault;

typedef struct ps_family {
    const char *name;         /* "1f1b" */
    const char *title;        /* "1F1B (PipeDream-flush)" */
    const char *summary;      /* one or two sentences: what the rule does */
    const char *constraints;  /* in words, "" where there are none */
    const char *placement;    /* "loop", "v", "bidirectional", "snake" */
    const char *source;       /* paper or file */
    const ps_option *options; /* num_options of them */
    int32_t num_options;
    /* Fill in PS_AUTO options and apply the family's own rules (p, m >= 1 hold
     * already). PS_ERR_RULE with *fault, or PS_OK. May be NULL: no rules. */
    ps_status (*check)(ps_config *config, ps_rule_fault *fault);
    /* Non-zero where these options can make the ranks wait in a circle, so that the
     * ops have to be checked before they are used; *fault says which rule they break.
     * O(m). NULL: never. */
    int (*may_deadlock)(const ps_config *config, ps_rule_fault *fault);
    /* Stages of the model: p, p*v, 2p, ... may overflow. NULL: p. */
    ps_status (*num_stages)(const ps_config *config, int64_t *out);
    /* Micro-batches the ops speak of, where that is not m (seq-1f1b counts the
     * sequence splits). NULL: m. */
    ps_status (*num_microbatches)(const ps_config *config, int64_t *out);
    /* Ops on a rank (config is checked). */
    ps_status (*length)(const ps_config *config, int32_t rank, int64_t *out);
    /* Write every rank's ops; rank r's start at ops[offsets[r]] and there is room
     * for exactly length(r). Linear in the ops. May allocate scratch. */
    ps_status (*fill)(const ps_config *config, const int64_t *offsets, ps_op *ops);
} ps_family;

/* The registry, in the order in which it should be shown. */
int32_t ps_family_count(void);
const ps_family *ps_family_at(int32_t index);
const ps_family *ps_family_find(const char *name); /* NULL: no such family */

/* Set every option to its preset. */
void ps_config_init(const ps_family *family, int32_t p, int32_t m, ps_config *config);

/* p, m and the options, then the family's own rules. PS_ERR_TOO_SMALL and
 * PS_ERR_RULE fill *fault; PS_ERR_UNKNOWN is a word out of range. */
PS_MUST_CHECK ps_status ps_config_check(const ps_family *family, ps_config *config,
                                        ps_rule_fault *fault);

/* The numbers of stages and micro-batches of a checked config, in O(1).
 * PS_ERR_OVERFLOW where they do not fit an int32 or where even the smallest
 * schedule of that size (one op a rank and micro-batch) cannot be addressed. */
PS_MUST_CHECK ps_status ps_family_size(const ps_family *family, const ps_config *config,
                                       int32_t *num_stages, int32_t *num_microbatches);

/* offsets (p + 1 entries, caller's) of a checked config, in O(p).
 * PS_ERR_OVERFLOW where the ops cannot be addressed. */
PS_MUST_CHECK ps_status ps_family_offsets(const ps_family *family, const ps_config *config,
                                          int64_t *offsets);

/* Write the ops: ops has offsets[p] entries. */
PS_MUST_CHECK ps_status ps_family_fill(const ps_family *family, const ps_config *config,
                                       const int64_t *offsets, ps_op *ops);

/* PipeDream with replicated stages (1F1B-RR), in generate/pipedream.c. Stage s has
 * replicas[s] ranks, numbered stage after stage; micro-batch j goes to replica
 * j mod replicas[s] of each, both ways. A replica admits in_flight[s] micro-batches
 * before the first of them comes back.
 *
 * offsets has one entry more than there are ranks. PS_ERR_TOO_SMALL: a count below 1;
 * PS_ERR_OVERFLOW. fill needs room for offsets[ranks] ops. */
PS_MUST_CHECK ps_status ps_replicated_ranks(const int32_t *replicas, int32_t num_stages,
                                            int32_t *ranks);
PS_MUST_CHECK ps_status ps_replicated_offsets(const int32_t *replicas, int32_t num_stages,
                                              int32_t m, int64_t *offsets);
PS_MUST_CHECK ps_status ps_replicated_fill(const int32_t *replicas, const int32_t *in_flight,
                                           int32_t num_stages, int32_t m,
                                           const int64_t *offsets, ps_op *ops);

#endif
