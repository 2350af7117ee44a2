/* The harness of the C tests.
 *
 * Each tests/c/test_<area>.c is a program of its own, linked with the whole core:
 *
 *     #include "ctest.h"
 *
 *     static void test_sum(void)
 *     {
 *         CHECK_INT(1 + 1, 2);
 *     }
 *
 *     int main(void)
 *     {
 *         RUN(test_sum);
 *         return ctest_done();
 *     }
 *
 * malloc, calloc and realloc are wrapped, so that a test can make any one of them
 * fail; `make ctest` runs every program under valgrind, which finds what leaks.
 */
#ifndef CTEST_H
#define CTEST_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps_base.h"

/* Checks go on after a failure; ctest_done makes it the program's exit code. */
void ctest_check(int holds, const char *text, const char *file, int line);
void ctest_check_int(int64_t got, int64_t expected, const char *text, const char *file,
                     int line);
void ctest_run(void (*test)(void), const char *name);
int ctest_done(void);

#define CHECK(condition) ctest_check(!!(condition), #condition, __FILE__, __LINE__)
#define CHECK_INT(got, expected)                                                               \
    ctest_check_int((int64_t)(got), (int64_t)(expected), #got, __FILE__, __LINE__)
#define RUN(test) ctest_run(test, #test)

/* Let the allocation with this number (0: the next) fail, and only that one; -1:
 * none. ctest_alloc_failed says whether it was reached. */
void ctest_fail_alloc(int64_t number);
int ctest_alloc_failed(void);

/* Run an expression that gives a ps_status once for each allocation it makes, with
 * that one failing: it must say PS_ERR_MEMORY each time and then, with none failing,
 * PS_OK. What it made the last time is the caller's to free. */
#define CHECK_EVERY_ALLOC(expression)                                                          \
    do {                                                                                       \
        int64_t ctest_number = 0;                                                              \
        for (;; ctest_number++) {                                                              \
            ctest_fail_alloc(ctest_number);                                                    \
            ps_status ctest_status = (expression);                                             \
            int ctest_reached = ctest_alloc_failed();                                          \
            ctest_fail_alloc(-1);                                                              \
            CHECK_INT(ctest_status, ctest_reached ? PS_ERR_MEMORY : PS_OK);                    \
            if (!ctest_reached || ctest_status != PS_ERR_MEMORY)                               \
                break;                                                                         \
        }                                                                                      \
    } while (0)

#endif
