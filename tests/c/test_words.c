/* Words in and out: layouts, what is not a word, and every prefix of a text. */
#include "ctest.h"
#include "ps_words.h"
#include "schedules.h"

static int64_t num_rows;
static int64_t num_ops;
static ps_words_fault fault;

static ps_status count(const char *text)
{
    return ps_words_count(text, (int64_t)strlen(text), &num_rows, &num_ops, &fault);
}

static void test_layouts(void)
{
    static const char *const texts[] = {
        "0F0,0F1\n1UNSHARD,(1F0;12B34)OVERLAP_F_B\n",
        "0F0,0F1\r\n1UNSHARD,(1F0;12B34)OVERLAP_F_B",
        "0F0,0F1\r1UNSHARD,(1F0;12B34)OVERLAP_F_B\r",
        " 0F0 ,,\"0F1\",\n, 1UNSHARD,\t( 1F0 ; 12B34 ) OVERLAP_F_B ,",
        "0F0,00F0001,\"\"\n1UNSHARD,(1F0;12B34)OVERLAP_F_B,",
    };
    static const ps_op expected[] = {
        OP(PS_F, 0, 0),     OP(PS_F, 0, 1),   OP(PS_UNSHARD, 1, -1),
        PAIRED(PS_F, 1, 0), OP(PS_B, 12, 34),
    };
    for (int64_t i = 0; i < COUNT(texts); i++) {
        CHECK_INT(count(texts[i]), PS_OK);
        CHECK_INT(num_rows, 2);
        CHECK_INT(num_ops, COUNT(expected));
        int64_t offsets[3];
        ps_op ops[COUNT(expected)];
        ps_words_read(texts[i], (int64_t)strlen(texts[i]), offsets, ops);
        CHECK_INT(offsets[1], 2);
        CHECK_INT(offsets[2], 5);
        CHECK(memcmp(ops, expected, sizeof expected) == 0);
        ps_schedule s = {ops, offsets, 2, 13, 35};
        char text[64];
        CHECK_INT(ps_words_length(&s), (int64_t)strlen(texts[0]));
        ps_words_write(&s, text);
        CHECK(memcmp(text, texts[0], strlen(texts[0])) == 0);
    }
}

static void test_rows(void)
{
    static const struct {
        const char *text;
        int64_t rows;
    } cases[] = {{"", 0},  {"\n", 1},  {"\r\n", 1},    {"\n\r", 2},
                 {",", 1}, {"0F0", 1}, {"0F0\n\n,", 3}};
    for (int64_t i = 0; i < COUNT(cases); i++) {
        CHECK_INT(count(cases[i].text), PS_OK);
        CHECK_INT(num_rows, cases[i].rows);
    }
}

static void test_what_is_no_word(void)
{
    static const char *const texts[] = {
        "F0",
        "0",
        "0F",
        "0X0",
        "0F0x",
        "0F-1",
        "0SEND0",
        "0SEND_F",
        "0UNSHARD0",
        "(",
        "()",
        "(0F0)",
        "(;)",
        "(0F0;0B0)",
        "(0F0;0B0)OVERLAP",
        "(0F0;0B0;0F1)OVERLAP_F_B",
        "(0F0;)OVERLAP_F_B",
        "0F0\"",
        "\"",
    };
    for (int64_t i = 0; i < COUNT(texts); i++) {
        CHECK_INT(count(texts[i]), PS_ERR_WORD);
        CHECK_INT(fault.too_large, 0);
        CHECK_INT(fault.length, (int64_t)strlen(texts[i]));
    }
    CHECK_INT(count("0F0\n0F1,, 0F2147483647 ,"), PS_ERR_WORD);
    CHECK_INT(fault.too_large, 1);
    CHECK_INT(fault.row, 1);
    CHECK_INT(fault.column, 2);
    CHECK_INT(fault.length, 12);
    CHECK_INT(count("99999999999999999999999999F0"), PS_ERR_WORD);
    CHECK_INT(fault.too_large, 1);
    CHECK_INT(count("0F2147483646,2147483646F0"), PS_OK);
}

/* Nothing is read past the end: each prefix stands in memory of its own size. */
static void test_every_prefix(void)
{
    static const char text[] = "0F0,(0F1;0B0)OVERLAP_F_B,\"0REDUCE_GRAD\"\r\n ,12BW34\r";
    for (int64_t length = 0; length < COUNT(text); length++) {
        void *memory;
        CHECK_INT(ps_alloc(length, 1, &memory), PS_OK);
        memcpy(memory, text, (size_t)length);
        ps_status status = ps_words_count(memory, length, &num_rows, &num_ops, &fault);
        CHECK(status == PS_OK || status == PS_ERR_WORD);
        if (status == PS_OK) {
            int64_t offsets[3];
            ps_op ops[5];
            ps_words_read(memory, length, offsets, ops);
            CHECK_INT(offsets[num_rows], num_ops);
        }
        free(memory);
    }
}

int main(void)
{
    RUN(test_layouts);
    RUN(test_rows);
    RUN(test_what_is_no_word);
    RUN(test_every_prefix);
    return ctest_done();
}
