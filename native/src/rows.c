/* Strict reading of flat rows. Whatever is not surely what the strict parser makes of it is left to
   that parser: every function returns 0 then. No byte at or behind `end` is ever looked at. */

#include "rows.h"

#include <string.h>

#define ONES UINT64_C(0x0101010101010101)
#define HIGHS UINT64_C(0x8080808080808080)

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    int escaped; /* holds a backslash */
    int high;    /* holds a byte that is not ASCII */
} text;

static uint64_t eight(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Not 0 where one of eight bytes is a quote, a backslash or a control character. */
static uint64_t stops(uint64_t word)
{
    uint64_t quote = word ^ (ONES * '"');
    uint64_t slash = word ^ (ONES * '\\');
    return (((quote - ONES) & ~quote) | ((slash - ONES) & ~slash) | ((word - ONES * 0x20) & ~word))
           & HIGHS;
}

static int is_stop(uint8_t byte)
{
    return byte == '"' || byte == '\\' || byte < 0x20;
}

/* The first quote, backslash or control character, or the end. */
static const uint8_t *next_stop(const uint8_t *at, const uint8_t *end, int *high)
{
    uint64_t seen = 0;
    while (end - at >= 32) {
        uint64_t a = eight(at), b = eight(at + 8), c = eight(at + 16), d = eight(at + 24);
        if (stops(a) | stops(b) | stops(c) | stops(d))
            break;
        seen |= a | b | c | d;
        at += 32;
    }
    while (end - at >= 8) {
        uint64_t word = eight(at);
        if (stops(word))
            break;
        seen |= word;
        at += 8;
    }
    *high |= (seen & HIGHS) != 0;
    while (at < end && !is_stop(*at)) {
        *high |= *at >= 0x80;
        at++;
    }
    return at;
}

/* Finds the end of a text whose opening quote stands before `at`; gives what follows its closing
   quote, or NULL. */
static const uint8_t *find_text(const uint8_t *at, const uint8_t *end, text *found)
{
    found->at = at;
    found->escaped = found->high = 0;
    for (;;) {
        at = next_stop(at, end, &found->high);
        if (at == end || *at < 0x20)
            return NULL;
        if (*at == '"') {
            found->end = at;
            return at + 1;
        }
        if (end - at < 2)
            return NULL;
        found->escaped = 1;
        found->high |= at[1] >= 0x80;
        at += 2;
    }
}

static int follows(const uint8_t *at, const uint8_t *end, int count)
{
    if (end - at < count)
        return 0;
    for (int i = 0; i < count; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    return 1;
}

/* Whether bytes are UTF-8: shortest forms only, no surrogates, nothing above U+10FFFF. */
static int is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint8_t first = *at;
        if (first < 0x80) {
            while (end - at >= 8 && !(eight(at) & HIGHS))
                at += 8;
            while (at < end && *at < 0x80)
                at++;
        } else if (first >= 0xc2 && first <= 0xdf) {
            if (!follows(at + 1, end, 1))
                return 0;
            at += 2;
        } else if (first >= 0xe0 && first <= 0xef) {
            if (!follows(at + 1, end, 2) || (first == 0xe0 && at[1] < 0xa0)
                || (first == 0xed && at[1] >= 0xa0))
                return 0;
            at += 3;
        } else if (first >= 0xf0 && first <= 0xf4) {
            if (!follows(at + 1, end, 3) || (first == 0xf0 && at[1] < 0x90)
                || (first == 0xf4 && at[1] >= 0x90))
                return 0;
            at += 4;
        } else {
            return 0;
        }
    }
    return 1;
}

static int hex4(const uint8_t *at, const uint8_t *end, uint32_t *code)
{
    if (end - at < 4)
        return 0;
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t c = at[i];
        uint32_t digit;
        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint32_t)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (uint32_t)(c - 'A') + 10;
        else
            return 0;
        value = value << 4 | digit;
    }
    *code = value;
    return 1;
}

static size_t put_code(uint32_t code, uint8_t *to)
{
    if (code < 0x80) {
        to[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (uint8_t)(0xc0 | code >> 6);
        to[1] = (uint8_t)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (uint8_t)(0xe0 | code >> 12);
        to[1] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        to[2] = (uint8_t)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (uint8_t)(0xf0 | code >> 18);
    to[1] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
    to[2] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    to[3] = (uint8_t)(0x80 | (code & 0x3f));
    return 4;
}

/* One escape, at its backslash; gives what follows it, or NULL. No escape becomes more bytes than it
   has. */
static const uint8_t *unescape(const uint8_t *at, const uint8_t *end, uint8_t *to, size_t *size)
{
    static const char spelled[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    if (end - at < 2)
        return NULL;
    if (at[1] != 'u') {
        const char *one = at[1] ? strchr(spelled, at[1]) : NULL;
        if (!one)
            return NULL;
        *to = (uint8_t)meant[one - spelled];
        *size = 1;
        return at + 2;
    }
    uint32_t code, low;
    if (!hex4(at + 2, end, &code))
        return NULL;
    at += 6;
    if (code >= 0xdc00 && code <= 0xdfff)
        return NULL;
    if (code >= 0xd800 && code <= 0xdbff) {
        if (end - at < 6 || at[0] != '\\' || at[1] != 'u' || !hex4(at + 2, end, &low))
            return NULL;
        if (low < 0xdc00 || low > 0xdfff)
            return NULL;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        at += 6;
    }
    *size = put_code(code, to);
    return at;
}

/* Decodes a text to `to`, which has room for as many bytes as it is spelled with; 0 where it is no
   text. */
static int decode(const text *one, uint8_t *to, size_t *size)
{
    const uint8_t *at = one->at;
    size_t spelled = (size_t)(one->end - at), made = 0;
    if (one->high && !is_utf8(at, one->end))
        return 0;
    if (!one->escaped) {
        if (spelled)
            memcpy(to, at, spelled);
        *size = spelled;
        return 1;
    }
    while (at < one->end) {
        const uint8_t *slash = memchr(at, '\\', (size_t)(one->end - at));
        size_t run = (size_t)((slash ? slash : one->end) - at), each = 0;
        memcpy(to + made, at, run);
        made += run;
        if (!slash)
            break;
        at = unescape(slash, one->end, to + made, &each);
        if (!at)
            return 0;
        made += each;
    }
    *size = made;
    return 1;
}

static int add_text(const text *one, output *out)
{
    size_t spelled = (size_t)(one->end - one->at), size;
    if (out->texts == out->texts_room || spelled > out->text_room - out->text_size)
        return 0;
    if (!decode(one, out->text + out->text_size, &size))
        return 0;
    out->text_size += size;
    if (out->text_size > INT32_MAX)
        return 0;
    out->ends[out->texts++] = (int32_t)out->text_size;
    return 1;
}

static const uint8_t *blanks(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return at;
}

/* What follows a character and the blanks before and behind it, or NULL. */
static const uint8_t *expect(const uint8_t *at, const uint8_t *end, char wanted)
{
    at = blanks(at, end);
    return at < end && *at == (uint8_t)wanted ? blanks(at + 1, end) : NULL;
}

static int is_span(span name, const uint8_t *at, size_t size)
{
    return name.size == size && (!size || !memcmp(name.at, at, size));
}

/* A turn, at what follows its brace; gives what follows the brace that closes it, or NULL. */
static const uint8_t *read_turn(
    const shape *wanted, const uint8_t *at, const uint8_t *end, output *out)
{
    text role = {0}, content = {0}, key;
    for (int i = 0; i < 2; i++) {
        if (at == end || *at != '"')
            return NULL;
        at = find_text(at + 1, end, &key);
        if (!at)
            return NULL;
        int said = is_span(wanted->said, key.at, (size_t)(key.end - key.at));
        if (!said && !is_span(wanted->who, key.at, (size_t)(key.end - key.at)))
            return NULL;
        text *one = said ? &content : &role;
        at = expect(at, end, ':');
        if (one->at || !at || at == end || *at != '"')
            return NULL;
        at = find_text(at + 1, end, one);
        at = at ? expect(at, end, i ? '}' : ',') : NULL;
        if (!at)
            return NULL;
    }
    for (int i = 0; i < wanted->role_count; i++)
        if (is_span(wanted->roles[i], role.at, (size_t)(role.end - role.at))) {
            size_t turn = out->texts;
            if (!add_text(&content, out))
                return NULL;
            out->roles[turn] = wanted->numbers[i];
            return at;
        }
    return NULL;
}

/* A list of turns, at its bracket; gives what follows it, or NULL. */
static const uint8_t *read_turns(
    const shape *wanted, const uint8_t *at, const uint8_t *end, output *out)
{
    at = expect(at, end, '[');
    while (at) {
        at = expect(at, end, '{');
        at = at ? read_turn(wanted, at, end, out) : NULL;
        if (!at || at == end)
            return NULL;
        if (*at == ']')
            return at + 1;
        at = expect(at, end, ',');
    }
    return NULL;
}

static const uint8_t *word(const uint8_t *at, const uint8_t *end, const char *spelled)
{
    size_t size = strlen(spelled);
    return (size_t)(end - at) >= size && !memcmp(at, spelled, size) ? at + size : NULL;
}

static const uint8_t *whole_number(const uint8_t *at, const uint8_t *end)
{
    int negative = *at == '-';
    const uint8_t *digits = at + negative;
    at = digits;
    while (at < end && *at >= '0' && *at <= '9' && at - digits < 16)
        at++;
    if (at == digits || at - digits > 15 || (*digits == '0' && (negative || at - digits > 1)))
        return NULL;
    if (at < end && (*at == '.' || *at == 'e' || *at == 'E'))
        return NULL;
    return at;
}

/* The value of another column: a text, a number, null, true, false, or an empty list or object. */
static const uint8_t *read_other(const uint8_t *at, const uint8_t *end, text *found)
{
    const uint8_t *start = at;
    if (at == end)
        return NULL;
    found->escaped = found->high = 0;
    if (*at == '"') {
        at = find_text(at + 1, end, found);
        found->escaped = 1; /* to be looked at before it is taken */
    } else if (*at == 'n') {
        at = word(at, end, "null");
    } else if (*at == 't') {
        at = word(at, end, "true");
    } else if (*at == 'f') {
        at = word(at, end, "false");
    } else if (*at == '[' || *at == '{') {
        const uint8_t *close = expect(at, end, (char)*at);
        at = close && close < end && *close == (*at == '[' ? ']' : '}') ? close + 1 : NULL;
    } else if (*at == '-' || (*at >= '0' && *at <= '9')) {
        at = whole_number(at, end);
    } else {
        at = NULL;
    }
    found->at = start;
    found->end = at;
    return at;
}

/* Takes the value of another column as it is spelled. */
static int add_other(const text *value, output *out)
{
    size_t size = (size_t)(value->end - value->at), decoded;
    if (size + 1 > out->other_room - out->other_size)
        return 0;
    uint8_t *to = out->other + out->other_size;
    if (*value->at == '"') { /* decoded there only to see whether it can be */
        text inside = {value->at + 1, value->end - 1, 1, 1};
        if (!decode(&inside, to, &decoded))
            return 0;
    }
    memcpy(to, value->at, size);
    to[size] = ',';
    out->other_size += size + 1;
    return 1;
}

static int column_of(const shape *wanted, const text *key, uint32_t seen, int likely)
{
    size_t size = (size_t)(key->end - key->at);
    for (int i = 0; i < wanted->columns; i++) {
        int column = (likely + i) % wanted->columns;
        if (is_span(wanted->names[column], key->at, size))
            return seen >> column & 1 ? -1 : column;
    }
    return -1;
}

/* The columns of a row, at what follows its brace; texts are found, and turns are read already. */
static int find_columns(
    const shape *wanted, const uint8_t *at, const uint8_t *end, text *values, output *out)
{
    uint32_t seen = 0;
    for (int i = 0; i < wanted->columns; i++) {
        text key;
        if (at == end || *at != '"')
            return 0;
        at = find_text(at + 1, end, &key);
        int column = at ? column_of(wanted, &key, seen, i) : -1;
        at = column >= 0 ? expect(at, end, ':') : NULL;
        if (!at)
            return 0;
        seen |= UINT32_C(1) << column;
        if (wanted->kinds[column] == TURNS)
            at = read_turns(wanted, at, end, out);
        else if (wanted->kinds[column] == OTHER)
            at = read_other(at, end, &values[column]);
        else
            at = at < end && *at == '"' ? find_text(at + 1, end, &values[column]) : NULL;
        at = at ? expect(at, end, i + 1 < wanted->columns ? ',' : '}') : NULL;
        if (!at)
            return 0;
    }
    return at == end;
}

int read_row(const shape *wanted, const uint8_t *line, const uint8_t *end, output *out)
{
    text values[MOST_COLUMNS];
    output before = *out;
    const uint8_t *at = line;
    if (wanted->columns < 1 || (size_t)(end - line) > wanted->longest)
        return 0;
    at = expect(at, end, '{');
    int read = at && find_columns(wanted, at, end, values, out);
    for (int i = 0; read && i < wanted->columns; i++) {
        if (wanted->kinds[i] == TEXT)
            read = add_text(&values[i], out);
        else if (wanted->kinds[i] == OTHER)
            read = add_other(&values[i], out);
    }
    if (!read) {
        *out = before;
        return 0;
    }
    out->sizes[out->rows++] = (int64_t)(out->texts - before.texts);
    return 1;
}
