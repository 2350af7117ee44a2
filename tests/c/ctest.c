#include "ctest.h"

static int64_t checks, failures;

void ctest_check(int holds, const char *text, const char *file, int line)
{
    checks++;
    if (holds)
        return;
    failures++;
    printf("%s:%d: not so: %s\n", file, line, text);
}

void ctest_check_int(int64_t got, int64_t expected, const char *text, const char *file,
                     int line)
{
    checks++;
    if (got == expected)
        return;
    failures++;
    printf("%s:%d: %s is %" PRId64 ", not %" PRId64 "\n", file, line, text, got, expected);
}

void ctest_run(void (*test)(void), const char *name)
{
    int64_t before = failures;
    test();
    if (failures != before)
        printf("FAILED %s\n", name);
}

int ctest_done(void)
{
    printf("%" PRId64 " checks, %" PRId64 " failed\n", checks, failures);
    return failures == 0 && checks > 0 ? 0 : 1;
}

/* ---- the allocator (linked with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc) ---- */

static int64_t countdown = -1; /* allocations until the one that fails; -1: none will */
static int reached;

void ctest_fail_alloc(int64_t number)
{
    countdown = number;
    reached = 0;
}

int ctest_alloc_failed(void)
{
    return reached;
}

static int fails_now(void)
{
    if (countdown < 0)
        return 0;
    if (countdown-- > 0)
        return 0;
    reached = 1;
    return 1;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *pointer, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *pointer, size_t size);

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *pointer, size_t size)
{
    return fails_now() ? NULL : __real_realloc(pointer, size);
}
