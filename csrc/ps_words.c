#include "ps_words.h"

#include <string.h>

/* By number: ps_kind, then PS_WORD_BW. */
static const struct {
    char word[12];
    int32_t length;
} KINDS[PS_WORD_BW + 1] = {
    [PS_F] = {"F", 1},
    [PS_B] = {"B", 1},
    [PS_I] = {"I", 1},
    [PS_W] = {"W", 1},
    [PS_SEND_F] = {"SEND_F", 6},
    [PS_RECV_F] = {"RECV_F", 6},
    [PS_SEND_B] = {"SEND_B", 6},
    [PS_RECV_B] = {"RECV_B", 6},
    [PS_UNSHARD] = {"UNSHARD", 7},
    [PS_RESHARD] = {"RESHARD", 7},
    [PS_REDUCE_GRAD] = {"REDUCE_GRAD", 11},
    [PS_WORD_BW] = {"BW", 2},
};

static const char OVERLAP[] = "OVERLAP_F_B";
enum { OVERLAP_LENGTH = sizeof OVERLAP - 1 };

/* ---- reading ------------------------------------------------------------------ */

typedef enum verdict { NO_WORD = 0, WORD = 1, TOO_LARGE = 2 } verdict;

/* Text from begin up to, not including, end. */
typedef struct span {
    const char *begin;
    const char *end;
} span;

static int is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\v' || c == '\f';
}

static span strip(span s)
{
    while (s.begin < s.end && is_space(*s.begin))
        s.begin++;
    while (s.begin < s.end && is_space(s.end[-1]))
        s.end--;
    return s;
}

static span strip_cell(span s)
{
    s = strip(s);
    if (s.end - s.begin >= 2 && *s.begin == '"' && s.end[-1] == '"')
        s = strip((span){s.begin + 1, s.end - 1});
    return s;
}

/* Digits up to the first that is none; one below INT32_MAX, so that the count of
 * what is numbered fits too. NO_WORD: no digit. */
static verdict read_number(span *s, int32_t *out)
{
    const char *start = s->begin;
    int64_t value = 0;
    while (s->begin < s->end && *s->begin >= '0' && *s->begin <= '9') {
        if (value < INT32_MAX)
            value = 10 * value + (*s->begin - '0');
        s->begin++;
    }
    *out = (int32_t)(value < INT32_MAX ? value : INT32_MAX);
    return s->begin == start ? NO_WORD : value < INT32_MAX ? WORD : TOO_LARGE;
}

/* The longest run of letters must be a kind. */
static int read_kind(span *s, int16_t *out)
{
    const char *start = s->begin;
    while (s->begin < s->end && ((*s->begin >= 'A' && *s->begin <= 'Z') || *s->begin == '_'))
        s->begin++;
    int64_t length = s->begin - start;
    for (int16_t kind = 0; kind <= PS_WORD_BW; kind++)
        if (KINDS[kind].length == length &&
            memcmp(KINDS[kind].word, start, (size_t)length) == 0) {
            *out = kind;
            return 1;
        }
    return 0;
}

static verdict read_action(span s, ps_op *op)
{
    s = strip(s);
    *op = (ps_op){0, -1, 0, 0};
    verdict stage = read_number(&s, &op->stage);
    if (stage == NO_WORD || !read_kind(&s, &op->kind))
        return NO_WORD;
    int whole_stage = op->kind >= PS_UNSHARD && op->kind != PS_WORD_BW;
    verdict microbatch = whole_stage ? WORD : read_number(&s, &op->microbatch);
    if (microbatch == NO_WORD || s.begin != s.end)
        return NO_WORD;
    return stage == TOO_LARGE || microbatch == TOO_LARGE ? TOO_LARGE : WORD;
}

/* A stripped cell that is not blank: one op, or two. */
static verdict read_cell(span s, ps_op ops[2], int32_t *count)
{
    *count = 1;
    if (*s.begin != '(')
        return read_action(s, &ops[0]);
    *count = 2;
    const char *close = memchr(s.begin, ')', (size_t)(s.end - s.begin));
    if (close == NULL)
        return NO_WORD;
    const char *middle = memchr(s.begin, ';', (size_t)(close - s.begin));
    span name = strip((span){close + 1, s.end});
    if (middle == NULL || name.end - name.begin != OVERLAP_LENGTH ||
        memcmp(name.begin, OVERLAP, OVERLAP_LENGTH) != 0)
        return NO_WORD;
    verdict first = read_action((span){s.begin + 1, middle}, &ops[0]);
    verdict second = read_action((span){middle + 1, close}, &ops[1]);
    ops[0].fuse = 1;
    if (first == NO_WORD || second == NO_WORD)
        return NO_WORD;
    return first == TOO_LARGE ? first : second;
}

static int is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

/* The end of the cell that starts at begin. */
static const char *cell_end(const char *begin, const char *end)
{
    while (begin < end && *begin != ',' && !is_line_end(*begin))
        begin++;
    return begin;
}

/* What follows the line end at `at`. */
static const char *next_line(const char *at, const char *end)
{
    return at + (at[0] == '\r' && at + 1 < end && at[1] == '\n' ? 2 : 1);
}

ps_status ps_words_count(const char *text, int64_t length, int64_t *num_rows, int64_t *num_ops,
                         ps_words_fault *fault)
{
    const char *end = text + length;
    int64_t rows = 0;
    int64_t ops = 0;
    int64_t column = 0;
    for (const char *at = text; at < end;) {
        const char *stop = cell_end(at, end);
        span cell = strip_cell((span){at, stop});
        if (cell.begin < cell.end) {
            ps_op read[2];
            int32_t count;
            verdict found = read_cell(cell, read, &count);
            if (found != WORD) {
                *fault = (ps_words_fault){rows, column, cell.begin, cell.end - cell.begin,
                                          found == TOO_LARGE};
                return PS_ERR_WORD;
            }
            ops += count;
        }
        if (stop == end || is_line_end(*stop)) {
            rows++;
            column = 0;
            at = stop == end ? end : next_line(stop, end);
        } else {
            column++;
            at = stop + 1;
            if (at == end) /* a comma ends the text: its row ends here too */
                rows++;
        }
    }
    *num_rows = rows;
    *num_ops = ops;
    return PS_OK;
}

void ps_words_read(const char *text, int64_t length, int64_t *offsets, ps_op *ops)
{
    const char *end = text + length;
    int64_t row = 0;
    int64_t n = 0;
    offsets[0] = 0;
    for (const char *at = text; at < end;) {
        const char *stop = cell_end(at, end);
        span cell = strip_cell((span){at, stop});
        if (cell.begin < cell.end) {
            ps_op read[2];
            int32_t count;
            (void)read_cell(cell, read, &count);
            ops[n++] = read[0];
            if (count == 2)
                ops[n++] = read[1];
        }
        if (stop == end || is_line_end(*stop)) {
            offsets[++row] = n;
            at = stop == end ? end : next_line(stop, end);
        } else {
            at = stop + 1;
            if (at == end)
                offsets[++row] = n;
        }
    }
}

/* ---- writing ------------------------------------------------------------------ */

static int32_t num_digits(int32_t value)
{
    int32_t digits = 1;
    for (; value >= 10; value /= 10)
        digits++;
    return digits;
}

static char *write_number(char *text, int32_t value)
{
    char *end = text + num_digits(value);
    char *at = end;
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (at > text);
    return end;
}

int64_t ps_words_length(const ps_schedule *schedule)
{
    int64_t length = 0;
    for (int32_t rank = 0; rank < schedule->p; rank++) {
        int64_t end = schedule->offsets[rank + 1];
        for (int64_t i = schedule->offsets[rank]; i < end; i++) {
            ps_op op = schedule->ops[i];
            length += num_digits(op.stage) + KINDS[op.kind].length + 1; /* with , or ; */
            length += op.kind < PS_UNSHARD ? num_digits(op.microbatch) : 0;
            length += op.fuse ? 2 + OVERLAP_LENGTH : 0;
        }
        length += end == schedule->offsets[rank]; /* the last comma is the line end */
    }
    return length;
}

void ps_words_write(const ps_schedule *schedule, char *text)
{
    for (int32_t rank = 0; rank < schedule->p; rank++) {
        int64_t end = schedule->offsets[rank + 1];
        int second = 0; /* of a pair */
        for (int64_t i = schedule->offsets[rank]; i < end; i++) {
            ps_op op = schedule->ops[i];
            if (op.fuse)
                *text++ = '(';
            text = write_number(text, op.stage);
            memcpy(text, KINDS[op.kind].word, (size_t)KINDS[op.kind].length);
            text += KINDS[op.kind].length;
            if (op.kind < PS_UNSHARD)
                text = write_number(text, op.microbatch);
            if (second) {
                *text++ = ')';
                memcpy(text, OVERLAP, OVERLAP_LENGTH);
                text += OVERLAP_LENGTH;
            }
            second = op.fuse;
            *text++ = op.fuse ? ';' : i + 1 < end ? ',' : '\n';
        }
        if (end == schedule->offsets[rank])
            *text++ = '\n';
    }
}
