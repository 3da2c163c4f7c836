#include "ids.h"

#include <string.h>

int are_bounds(const int64_t *bounds, size_t count, size_t values)
{
    if (bounds[0] < 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (bounds[i + 1] < bounds[i])
            return 0;
    return (uint64_t)bounds[count] <= values;
}

int put_together(
    runs fixed, runs own, const uint8_t *trained, const int64_t *places, size_t count, int32_t *to,
    size_t room, int64_t *bounds)
{
    size_t made = 0;
    bounds[0] = 0;
    for (size_t i = 0; i < count; i++) {
        if (places[i] < 0 || (uint64_t)places[i] >= fixed.count + own.count)
            return 0;
        size_t place = (size_t)places[i];
        int of_row = place >= fixed.count;
        size_t run = of_row ? place - fixed.count : place;
        const runs *from = of_row ? &own : &fixed;
        size_t size = (size_t)(from->bounds[run + 1] - from->bounds[run]);
        if (size > room - made)
            return 0;
        if (size) {
            const int32_t *values = from->values + from->bounds[run];
            int32_t flip = of_row && trained[run] ? -1 : 0;
            for (size_t j = 0; j < size; j++)
                to[made + j] = values[j] ^ flip;
            made += size;
        }
        bounds[i + 1] = (int64_t)made;
    }
    return made == room;
}

void take_apart(const int32_t *folded, size_t count, int32_t ignored, int32_t *ids, int32_t *labels)
{
    for (size_t i = 0; i < count; i++) {
        int32_t value = folded[i];
        int32_t trained = -(int32_t)(value < 0);
        int32_t id = value ^ trained;
        ids[i] = id;
        labels[i] = ((id ^ ignored) & trained) ^ ignored;
    }
}
