/* The prefixes of a graph of layers: where a pipeline may be cut.
 *
 * A state is a set of layers that may lie before a cut (it holds the predecessors
 * of all its members), with the sums of its costs and the bytes that cross the cut.
 * Shared by the two partitioners; not for other users of the core.
 */
#ifndef PS_STATES_H
#define PS_STATES_H

#include "../ps_partition.h"

typedef struct ps_states {
    int32_t count;      /* states, less compute first, a prefix before all that contain it */
    int32_t words;      /* 64-bit words a set */
    uint64_t *inside;   /* count * words: the layers before the cut */
    double *compute;    /* count sums over them */
    double *activation; /* likewise */
    double *parameters; /* likewise */
    double *crossing;   /* bytes of outputs that are needed behind the cut */
} ps_states;

/* Zero first; free is safe on a zeroed or half-made object. */
void ps_states_free(ps_states *states);

/* Every prefix, the empty one first. With join_free, layers that cost nothing at all
 * join as soon as they can, which loses no optimum unless stages must be so many.
 * PS_ERR_TOO_LARGE: more than `limit`. */
PS_MUST_CHECK ps_status ps_states_all(const ps_layers *layers, int32_t limit, int join_free,
                                      ps_states *states);

/* The prefixes of two orders of the layers: as given, and breadth first. */
PS_MUST_CHECK ps_status ps_states_linear(const ps_layers *layers, ps_states *states);

/* The states of PipeDream's published program: antichains from the first source
 * on; no empty prefix. PS_ERR_TOO_LARGE: more than `limit`. */
PS_MUST_CHECK ps_status ps_states_pipedream(const ps_layers *layers, int32_t limit,
                                            ps_states *states);

/* Whether state a's layers are a strict subset of state b's. */
static inline int ps_states_before(const ps_states *states, int32_t a, int32_t b)
{
    const uint64_t *x = states->inside + (int64_t)a * states->words;
    const uint64_t *y = states->inside + (int64_t)b * states->words;
    uint64_t more = 0;
    for (int32_t w = 0; w < states->words; w++) {
        if (x[w] & ~y[w])
            return 0;
        more |= x[w] ^ y[w];
    }
    return more != 0;
}

#endif
