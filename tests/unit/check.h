/*
 * check: cmocka with its includes, and comparisons that name the case of a table and print expected
 * and actual. The arguments are evaluated once.
 */
#ifndef BELLJAR_TESTS_CHECK_H
#define BELLJAR_TESTS_CHECK_H

#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* fail_msg() does not return, but is not declared so. */
#define FAIL(...)                                                                                  \
    do {                                                                                           \
        fail_msg(__VA_ARGS__);                                                                     \
        abort();                                                                                   \
    } while (0)

#define CHECK_INT(name, got, want)                                                                 \
    do {                                                                                           \
        long long got_ = (long long)(got), want_ = (long long)(want);                              \
        if (got_ != want_)                                                                         \
            FAIL("%s: expected %lld, got %lld", (name), want_, got_);                              \
    } while (0)

#define CHECK_STR(name, got, want)                                                                 \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (!str_eq(got_, want_))                                                                  \
            FAIL("%s: expected \"%s\", got \"%s\"", (name), want_, got_ ? got_ : "(null)");        \
    } while (0)

#define CHECK(name, condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            FAIL("%s: expected %s", (name), #condition);                                           \
    } while (0)

#endif
