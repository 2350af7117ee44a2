/* Torch's action words: text to ops and back.
 *
 * Text is rows, one a rank, each ended by \n, \r\n or \r (the last may do without);
 * a row is cells between commas. A cell, stripped of white space and of one pair of
 * double quotes, is blank (an idle slot), an action, or an overlapped pair of two:
 *
 *     action = stage KIND [microbatch]        2F0   3SEND_B12   1UNSHARD
 *     pair   = ( action ; action ) OVERLAP_F_B
 *
 * Files from before December 2024 have the kind BW, which no ps_kind is; it is read
 * as PS_WORD_BW, for the caller to translate.
 */
#ifndef PS_WORDS_H
#define PS_WORDS_H

#include "ps_schedule.h"

enum { PS_WORD_BW = PS_NUM_KINDS };

/* A cell that is not a word; its text points into what was read. */
typedef struct ps_words_fault {
    int64_t row; /* from 0 */
    int64_t column;
    const char *text; /* stripped */
    int64_t length;
    int32_t too_large; /* it is a word, but a number in it does not fit */
} ps_words_fault;

/* How many rows and ops a text has. Any bytes may be given. PS_ERR_WORD with *fault
 * where a cell is not a word. O(length). */
PS_MUST_CHECK ps_status ps_words_count(const char *text, int64_t length, int64_t *num_rows,
                                       int64_t *num_ops, ps_words_fault *fault);

/* Read a text that ps_words_count has counted: offsets has num_rows + 1 entries, ops
 * has num_ops. O(length). */
void ps_words_read(const char *text, int64_t length, int64_t *offsets, ps_op *ops);

/* Length of a schedule as text: cells between commas, each row ended by \n. Every op
 * must be in range. O(ops). */
int64_t ps_words_length(const ps_schedule *schedule);

/* Write the text: ps_words_length characters, no NUL after them. O(ops). */
void ps_words_write(const ps_schedule *schedule, char *text);

#endif
