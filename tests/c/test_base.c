/* Sums and products at the edges of int64, sizes at the edge of memory, and an
 * allocator that fails. */
#include "ctest.h"

static void test_add(void)
{
    int64_t sum = 7;
    CHECK_INT(ps_add(0, 0, &sum), PS_OK);
    CHECK_INT(sum, 0);
    CHECK_INT(ps_add(INT64_MAX - 1, 1, &sum), PS_OK);
    CHECK_INT(sum, INT64_MAX);
    sum = 7;
    CHECK_INT(ps_add(INT64_MAX, 1, &sum), PS_ERR_OVERFLOW);
    CHECK_INT(ps_add(1, INT64_MAX, &sum), PS_ERR_OVERFLOW);
    CHECK_INT(ps_add(INT64_MAX, INT64_MAX, &sum), PS_ERR_OVERFLOW);
    CHECK_INT(sum, 7);
}

static void test_mul(void)
{
    const int64_t root = INT64_C(3037000499); /* the largest whose square fits */
    int64_t product = 7;
    CHECK_INT(ps_mul(INT64_MAX, 0, &product), PS_OK);
    CHECK_INT(product, 0);
    CHECK_INT(ps_mul(0, INT64_MAX, &product), PS_OK);
    CHECK_INT(product, 0);
    CHECK_INT(ps_mul(INT64_MAX, 1, &product), PS_OK);
    CHECK_INT(product, INT64_MAX);
    CHECK_INT(ps_mul(1, INT64_MAX, &product), PS_OK);
    CHECK_INT(product, INT64_MAX);
    CHECK_INT(ps_mul(root, root, &product), PS_OK);
    CHECK_INT(product, root * root);
    product = 7;
    CHECK_INT(ps_mul(root + 1, root + 1, &product), PS_ERR_OVERFLOW);
    CHECK_INT(ps_mul(INT64_MAX / 2 + 1, 2, &product), PS_ERR_OVERFLOW);
    CHECK_INT(ps_mul(2, INT64_MAX / 2 + 1, &product), PS_ERR_OVERFLOW);
    CHECK_INT(ps_mul(INT64_MAX, INT64_MAX, &product), PS_ERR_OVERFLOW);
    CHECK_INT(product, 7);
}

static void test_alloc_sizes(void)
{
    void *memory = NULL;
    CHECK_INT(ps_alloc(0, 8, &memory), PS_OK);
    CHECK(memory != NULL);
    free(memory);
    void *zeroed = NULL;
    CHECK_INT(ps_alloc_zeroed(3, 8, &zeroed), PS_OK);
    static const char zeros[24];
    CHECK(zeroed != NULL && memcmp(zeroed, zeros, sizeof zeros) == 0);
    free(zeroed);
    memory = NULL;
    CHECK_INT(ps_alloc(-1, 8, &memory), PS_ERR_OVERFLOW);
    CHECK_INT(ps_alloc(INT64_MAX, 2, &memory), PS_ERR_OVERFLOW);
    CHECK_INT(ps_alloc_zeroed(INT64_MAX / 8 + 1, 8, &memory), PS_ERR_OVERFLOW);
    CHECK_INT(ps_alloc_zeroed(-1, 8, &memory), PS_ERR_OVERFLOW);
    CHECK(memory == NULL);
}

static ps_status alloc_both(void)
{
    void *one = NULL, *two = NULL;
    ps_status status = ps_alloc(5, 4, &one);
    if (status != PS_OK)
        goto done;
    status = ps_alloc_zeroed(5, 4, &two);
done:
    free(one);
    free(two);
    return status;
}

static void test_alloc_fails(void)
{
    CHECK_EVERY_ALLOC(alloc_both());
}

static void test_every_status_has_its_text(void)
{
    int known = 0;
    for (int code = 0; code > -100; code--) {
        const char *text = ps_strerror((ps_status)code);
        CHECK(text != NULL && text[0] != '\0');
        known += strcmp(text, "unknown status") != 0;
    }
    CHECK(known > 10);
    CHECK(strcmp(ps_strerror(PS_OK), "no error") == 0);
}

int main(void)
{
    RUN(test_add);
    RUN(test_mul);
    RUN(test_alloc_sizes);
    RUN(test_alloc_fails);
    RUN(test_every_status_has_its_text);
    return ctest_done();
}
