/* Costs -> times: when each op of a schedule starts and ends, and what follows
 * from that: busy time, peak memory, what each op waited for.
 *
 * The order of the ops on each rank is given, so there is nothing to choose: a
 * rank runs its ops one after the other, each as soon as the rank is free and
 * what it depends on (ps_schedule.h) has arrived. The simulator lets one rank
 * run until it must wait, notes it at what it waits for, and goes on with a rank
 * that can; each op is looked at once, so time and memory are linear in the ops.
 * Integer costs give exact results (below 2^53), and nothing depends on the
 * order in which ranks were taken.
 *
 * A schedule should have passed ps_check. Whatever it holds, no function here
 * reads or writes outside its arrays; the worst is one of the errors named.
 */
#ifndef PS_SIMULATE_H
#define PS_SIMULATE_H

#include "ps_schedule.h"

/* The costs of one model; borrowed, finite and not negative. S stages. */
typedef struct ps_costs {
    const double *times;     /* 4 * S: of F, then of B, I, W */
    const double *overlap;   /* S: an overlapped pair, by its forward's stage; or NULL: the
                                sum of its two ops */
    const double *transfers; /* 2 * S: [s] activations from s to s + 1; [S + s] gradients
                                from s + 1 to s; the last of each is not used */
    const double *scale;     /* one a micro-batch, or NULL: 1 */
    const double *memory;    /* 3 * S: bytes of an activation; of it after I; static */
    int serial;              /* one transfer at a time from one rank to another */
} ps_costs;

/* The results; the caller owns all arrays. */
typedef struct ps_times {
    double *end;               /* one an op; NULL: not wanted */
    double *busy;              /* p: time at work */
    double *first;             /* p: start of the first compute op; 0 on a rank without */
    double *last;              /* p: end of the last compute op; 0 on a rank without */
    double *fixed;             /* p: static bytes */
    double *peak_memory;       /* p: most bytes held, static ones included */
    int64_t *peak_activations; /* p: most activations held, from F until B or W */
} ps_times;

/* Scratch for any number of runs on one schedule, one run at a time. */
typedef struct ps_simulator ps_simulator;

/* Makes the scratch: some 16 bytes a (stage, micro-batch). The schedule's arrays
 * are borrowed until ps_simulator_free (which takes NULL too).
 * PS_ERR_MEMORY, PS_ERR_OVERFLOW. */
PS_MUST_CHECK ps_status ps_simulator_new(const ps_schedule *schedule, ps_simulator **out);
void ps_simulator_free(ps_simulator *simulator);

/* One run. PS_ERR_DEADLOCK where the ranks wait in a circle or for an op that is
 * not there, PS_ERR_OP_RANGE for an op beyond the schedule's bounds,
 * PS_ERR_OVERFLOW where times or bytes leave the range of a double. */
PS_MUST_CHECK ps_status ps_simulator_run(ps_simulator *simulator, const ps_costs *costs,
                                         const ps_times *times);

/* From the ends that a run with these costs gave: the start of every op (both ops of
 * an overlapped pair have the pair's) and what fixed it. Either array may be NULL.
 * cause[i] = the op whose end, plus transfers, is the start of op i; -1 where nothing
 * fixed it. If the rank's own previous op did (also at a tie), that one; the second op
 * of a pair has the cause of the first. On a serial link that was busy, the op whose
 * transfer began the unbroken row of transfers. PS_ERR_MEMORY. */
PS_MUST_CHECK ps_status ps_simulator_look_back(ps_simulator *simulator, const ps_costs *costs,
                                               const double *end, double *start,
                                               int64_t *cause);

#endif
