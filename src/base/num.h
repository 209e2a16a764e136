/*
 * num: numbers from text, the whole text or nothing. No sign, space or trailing character is
 * tolerated unless stated. Each returns 0, -EINVAL (not such a number) or -ERANGE.
 */
#ifndef BELLJAR_BASE_NUM_H
#define BELLJAR_BASE_NUM_H

#include "base/base.h"

/* Decimal, an optional '-' first. */
int num_parse_int(const char *text, int64_t min, int64_t max, int64_t *ret);

/* Finite decimal fraction, an optional '-' first. */
int num_parse_real(const char *text, double min, double max, double *ret);

/* Bytes: decimal with an optional suffix k, m, g or t (powers of 1024; "kb" and "KiB" too). */
int num_parse_size(const char *text, int64_t min, int64_t max, int64_t *ret);

/* Milliseconds: a bare number is seconds ("30", "0.5"); or with ms, s, m, h, d. What is finer than
 * a millisecond is rounded up, so that only zero reads as zero. */
int num_parse_duration(const char *text, int64_t min_ms, int64_t max_ms, int64_t *ret_ms);

/* true, yes, on, 1 / false, no, off, 0, in any case. */
int num_parse_bool(const char *text, bool *ret);

/* The shortest decimal that reads back as the same double; `value` must be finite. */
enum { NUM_REAL_MAX = 32 };
void num_format_real(double value, char out[static NUM_REAL_MAX]);

#endif
