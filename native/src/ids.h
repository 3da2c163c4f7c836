/* Ids of tokens: rows put together, taken apart, and compared; no Python in here. */
#ifndef POSTTRAIN_IDS_H
#define POSTTRAIN_IDS_H

#include <stddef.h>
#include <stdint.h>

/* Runs of numbers: run i is values[bounds[i]] to values[bounds[i + 1]]. */
typedef struct {
    const int32_t *values;
    const int64_t *bounds;
    size_t count;
} runs;

/* Whether the bounds of runs rise and stay within so many values. */
int are_bounds(const int64_t *bounds, size_t count, size_t values);

/* Puts runs one behind the other: run places[i] of the template's, or own run places[i] - fixed.count,
   complemented where it is trained. Gives 0 where a place is none or the room does not do. */
int put_together(
    runs fixed, runs own, const uint8_t *trained, const int64_t *places, size_t count, int32_t *to,
    size_t room, int64_t *bounds);

/* Folded ids to ids and labels. */
void take_apart(const int32_t *folded, size_t count, int32_t ignored, int32_t *ids, int32_t *labels);

#endif
