#include "list_schedule.h"

#include <stdlib.h>

#include "order.h"

/* The forwards, or the backwards, of one stage of one pipeline: they become ready, and
 * run, in the order of the micro-batches, so two counters say all. */
typedef struct stream {
    int32_t ready; /* micro-batches 0 .. ready-1 have become ready */
    int32_t done;  /* and 0 .. done-1 have run */
} stream;

/* A stream's next op as one number, smallest first: the kind (forwards later), the
 * micro-batch, the stream. 1 + 31 + 32 bits. */
typedef uint64_t key;

typedef struct worker {
    const ps_list_plan *plan;
    stream *streams; /* [pipe][stage][backward, forward] */
    key *heaps;      /* [rank][capacity]: streams with an op ready */
    int32_t *sizes;  /* of the heaps */
    int64_t capacity;
    int32_t *active; /* ranks with a non-empty heap */
    int32_t num_active;
    int64_t *next; /* where each rank's next op goes */
    uint32_t *ran; /* the streams that ran in this unit */
} worker;

static int32_t rank_of(const worker *w, uint32_t id)
{
    const uint32_t stages = (uint32_t)w->plan->num_stages;
    const uint32_t place = id / 2;
    return w->plan->pipes[place / stages].rank[place % stages];
}

static key key_of(const worker *w, uint32_t id)
{
    return (key)(id % 2) << 63 | (key)(uint32_t)w->streams[id].done << 32 | id;
}

static void heap_push(key *heap, int32_t size, key value)
{
    int32_t at = size;
    while (at > 0 && heap[(at - 1) / 2] > value) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = value;
}

static key heap_pop(key *heap, int32_t size)
{
    const key top = heap[0];
    const key last = heap[size - 1];
    int32_t at = 0;
    for (int32_t child = 1; child < size - 1; child = 2 * at + 1) {
        if (child + 1 < size - 1 && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

static void enqueue(worker *w, int32_t rank, uint32_t id)
{
    heap_push(w->heaps + rank * w->capacity, w->sizes[rank]++, key_of(w, id));
}

/* One more op of a stream is ready from the next unit on. */
static void make_ready(worker *w, uint32_t id)
{
    stream *s = &w->streams[id];
    if (s->ready++ != s->done)
        return; /* the stream is in the heap with an older op */
    int32_t rank = rank_of(w, id);
    if (w->sizes[rank] == 0)
        w->active[w->num_active++] = rank;
    enqueue(w, rank, id);
}

/* What an op that has just run makes ready. */
static void follow(worker *w, uint32_t id)
{
    const uint32_t stages = (uint32_t)w->plan->num_stages;
    const uint32_t stage = id / 2 % stages;
    if (id % 2 == 1) /* forward: the next stage's, or at the last stage the backward */
        make_ready(w, stage + 1 < stages ? id + 2 : id - 1);
    else if (stage > 0)
        make_ready(w, id - 2);
}

/* The rank's best ready op; returns its stream. */
static uint32_t run_one(worker *w, int32_t rank, ps_op *ops)
{
    key *heap = w->heaps + rank * w->capacity;
    const uint32_t id = (uint32_t)heap_pop(heap, w->sizes[rank]--);
    const uint32_t stages = (uint32_t)w->plan->num_stages;
    const ps_pipe *pipe = &w->plan->pipes[id / 2 / stages];
    stream *s = &w->streams[id];
    ps_put(ops + w->next[rank]++, (int32_t)(id / 2 % stages), pipe->first + s->done,
           id % 2 == 1 ? PS_F : PS_B);
    s->done++;
    return id;
}

static void run(worker *w, ps_op *ops)
{
    while (w->num_active > 0) {
        const int32_t busy = w->num_active;
        for (int32_t i = 0; i < busy; i++)
            w->ran[i] = run_one(w, w->active[i], ops);
        /* Only now does what they made ready count, as a unit has passed. Ranks whose
         * heap is not empty stay active; enqueue their stream's next op first, so that
         * make_ready sees who is active already. */
        w->num_active = 0;
        for (int32_t i = 0; i < busy; i++) {
            const stream *s = &w->streams[w->ran[i]];
            const int32_t rank = w->active[i];
            if (s->done < s->ready)
                enqueue(w, rank, w->ran[i]);
            if (w->sizes[rank] > 0)
                w->active[w->num_active++] = rank;
        }
        for (int32_t i = 0; i < busy; i++)
            follow(w, w->ran[i]);
    }
}

ps_status ps_list_schedule(const ps_list_plan *plan, const int64_t *offsets, ps_op *ops)
{
    worker w = {.plan = plan};
    int64_t num_streams;
    void *room[5] = {NULL};
    ps_status status = ps_mul(2 * (int64_t)plan->num_pipes, plan->num_stages, &num_streams);
    if (status == PS_OK && num_streams > UINT32_MAX)
        status = PS_ERR_OVERFLOW;
    if (status != PS_OK)
        goto done;
    w.capacity = num_streams / plan->p;
    const struct {
        int64_t count;
        size_t size;
    } wanted[5] = {{num_streams, sizeof(stream)},
                   {num_streams, sizeof(key)},
                   {2 * (int64_t)plan->p, sizeof(int32_t)},
                   {plan->p, sizeof(int64_t)},
                   {plan->p, sizeof(uint32_t)}};
    for (int i = 0; i < 5 && status == PS_OK; i++)
        status = ps_alloc_zeroed(wanted[i].count, wanted[i].size, &room[i]);
    if (status != PS_OK)
        goto done;
    w.streams = room[0];
    w.heaps = room[1];
    w.sizes = room[2];
    w.active = w.sizes + plan->p;
    w.next = room[3];
    w.ran = room[4];
    for (int32_t r = 0; r < plan->p; r++)
        w.next[r] = offsets[r];
    for (int32_t pipe = 0; pipe < plan->num_pipes; pipe++) {
        const uint32_t entry = 2 * (uint32_t)pipe * (uint32_t)plan->num_stages + 1;
        if (plan->pipes[pipe].count > 0)
            make_ready(&w, entry);
        w.streams[entry].ready = plan->pipes[pipe].count;
    }
    run(&w, ops);
done:
    for (int i = 0; i < 5; i++)
        free(room[i]);
    return status;
}
