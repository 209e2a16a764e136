#include "base/num.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits at *at and moves on behind them. Overflow still reads to the end, for the caller
 * must tell "too big" from "not a number". */
static int read_digits(const char **at, uint64_t *ret)
{
    uint64_t value = 0;
    bool overflow = false;
    if (!is_digit(**at))
        return -EINVAL;
    for (; is_digit(**at); (*at)++) {
        overflow |= __builtin_mul_overflow(value, 10u, &value);
        overflow |= __builtin_add_overflow(value, (uint64_t)(**at - '0'), &value);
    }
    *ret = overflow ? UINT64_MAX : value;
    return 0;
}

static int in_range(int64_t value, int64_t min, int64_t max, int64_t *ret)
{
    if (value < min || value > max)
        return -ERANGE;
    *ret = value;
    return 0;
}

int num_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret)
{
    bool negative = *text == '-';
    const char *at = text + negative;
    uint64_t value;
    if (read_digits(&at, &value) < 0 || *at)
        return -EINVAL;
    if (value > (uint64_t)INT64_MAX + negative)
        return -ERANGE;
    /* 0 - value in unsigned arithmetic: INT64_MIN has no positive twin */
    return in_range(negative ? (int64_t)(0 - value) : (int64_t)value, min, max, ret);
}

/* strtod() alone would also take spaces, "inf", "0x1p3" and exponents. */
static bool is_decimal_fraction(const char *text)
{
    const char *at = text + (*text == '-');
    uint64_t ignored;
    if (read_digits(&at, &ignored) < 0)
        return false;
    if (*at == '.') {
        at++;
        if (read_digits(&at, &ignored) < 0)
            return false;
    }
    return !*at;
}

int num_parse_real(const char *text, double min, double max, double *ret)
{
    if (!is_decimal_fraction(text))
        return -EINVAL;
    double value = strtod(text, NULL);
    if (!isfinite(value) || value < min || value > max)
        return -ERANGE;
    *ret = value;
    return 0;
}

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit *find_unit(const struct unit *units, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(units[i].name, name) == 0)
            return &units[i];
    return NULL;
}

int num_parse_size(const char *text, int64_t min, int64_t max, int64_t *ret)
{
    /* clang-format off */
    static const struct unit units[] = {
        { "", 1 },
        { "k", 1ull << 10 }, { "kb", 1ull << 10 }, { "kib", 1ull << 10 },
        { "m", 1ull << 20 }, { "mb", 1ull << 20 }, { "mib", 1ull << 20 },
        { "g", 1ull << 30 }, { "gb", 1ull << 30 }, { "gib", 1ull << 30 },
        { "t", 1ull << 40 }, { "tb", 1ull << 40 }, { "tib", 1ull << 40 },
    };
    /* clang-format on */
    const char *at = text;
    uint64_t count;
    if (read_digits(&at, &count) < 0)
        return -EINVAL;
    const struct unit *unit = find_unit(units, ARRAY_SIZE(units), at);
    if (!unit)
        return -EINVAL;
    int64_t bytes;
    if (__builtin_mul_overflow(count, unit->factor, &bytes))
        return -ERANGE;
    return in_range(bytes, min, max, ret);
}

enum { FRACTION_DIGITS = 9, FRACTION_ONE = 1000000000 };

/* The digits after the point as a count of FRACTION_ONE parts, rounded up. */
static int read_fraction(const char **at, uint64_t *ret)
{
    uint64_t parts = 0;
    bool finer = false;
    size_t digits = 0;
    for (; is_digit(**at); (*at)++, digits++) {
        if (digits < FRACTION_DIGITS)
            parts = parts * 10 + (uint64_t)(**at - '0');
        else
            finer |= **at != '0';
    }
    if (!digits)
        return -EINVAL;
    for (; digits < FRACTION_DIGITS; digits++)
        parts *= 10;
    *ret = parts + finer;
    return 0;
}

int num_parse_duration(const char *text, int64_t min_ms, int64_t max_ms, int64_t *ret_ms)
{
    static const struct unit units[] = {
        { "", 1000 },   { "ms", 1 },      { "s", 1000 },
        { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 },
    };
    const char *at = text;
    uint64_t whole, parts = 0;
    if (read_digits(&at, &whole) < 0)
        return -EINVAL;
    if (*at == '.') {
        at++;
        if (read_fraction(&at, &parts) < 0)
            return -EINVAL;
    }
    const struct unit *unit = find_unit(units, ARRAY_SIZE(units), at);
    if (!unit)
        return -EINVAL;
    int64_t ms;
    uint64_t fraction_ms = (parts * unit->factor + FRACTION_ONE - 1) / FRACTION_ONE;
    if (__builtin_mul_overflow(whole, unit->factor, &ms) ||
        __builtin_add_overflow(ms, fraction_ms, &ms))
        return -ERANGE;
    return in_range(ms, min_ms, max_ms, ret_ms);
}

int num_parse_bool(const char *text, bool *ret)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {
        { "true", true },   { "yes", true }, { "on", true },   { "1", true },
        { "false", false }, { "no", false }, { "off", false }, { "0", false },
    };
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcasecmp(words[i].word, text) == 0) {
            *ret = words[i].value;
            return 0;
        }
    }
    return -EINVAL;
}

/* "1e+22" and "1e-07" say the same as "1e22" and "1e-7". */
static void shorten_exponent(char *text)
{
    char *e = strchr(text, 'e');
    if (!e)
        return;
    char *to = e + 1;
    char *from = e + 1;
    if (*from == '+')
        from++;
    else if (*from == '-')
        *to++ = *from++;
    while (from[0] == '0' && from[1])
        from++;
    memmove(to, from, strlen(from) + 1);
}

void num_format_real(double value, char out[static NUM_REAL_MAX])
{
    /* 15 digits survive the way through a normal double, so %.15g finds every shorter form too;
     * subnormal numbers hold fewer. */
    bool normal = fabs(value) >= DBL_MIN;
    for (int digits = normal ? DBL_DIG : 1; digits <= DBL_DECIMAL_DIG; digits++) {
        (void)snprintf(out, NUM_REAL_MAX, "%.*g", digits, value); /* 24 characters at most */
        if (strtod(out, NULL) == value)
            break;
    }
    shorten_exponent(out);
}
