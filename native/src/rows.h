/* What one pass over lines of JSON needs and makes; no Python in here. */
#ifndef POSTTRAIN_ROWS_H
#define POSTTRAIN_ROWS_H

#include <stddef.h>
#include <stdint.h>

#define MOST_COLUMNS 32
#define MOST_ROLES 16

enum column_kind { TEXT = 0, TURNS = 1, OTHER = 2 };

typedef struct {
    const uint8_t *at;
    size_t size;
} span;

typedef struct {
    span names[MOST_COLUMNS];
    int kinds[MOST_COLUMNS];
    int columns;
    span who, said; /* the keys of a turn */
    span roles[MOST_ROLES];
    int8_t numbers[MOST_ROLES]; /* of the roles */
    int role_count;
    size_t longest; /* bytes of a line that is read */
} shape;

typedef struct {
    uint8_t *text; /* all texts, decoded, one after the other */
    size_t text_size, text_room;
    int32_t *ends; /* where each text ends */
    int8_t *roles; /* of each turn, where a column of turns is read */
    size_t texts, texts_room;
    int64_t *sizes; /* texts of each row */
    size_t rows;
    uint8_t *other; /* values of the other columns: JSON, a comma behind each */
    size_t other_size, other_room;
} output;

/* Reads one line without its end: 1, or 0 with the output as it was. */
int read_row(const shape *wanted, const uint8_t *line, const uint8_t *end, output *out);

#endif
