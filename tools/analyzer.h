/*
 * Included before every file that clang-tidy reads: what its analyser, which sees one file at a
 * time, cannot find out for itself.
 */
#include "base/err.h"
#include "base/list.h"

/* What err_set() and its sisters return is negative: after a failed call the caller went home. */
static inline int negative(int r)
{
    return r < 0 ? r : -1;
}
#define err_set(...) negative((err_set)(__VA_ARGS__))
#define err_sys(...) negative((err_sys)(__VA_ARGS__))
#define err_wrap(...) negative((err_wrap)(__VA_ARGS__))

/* The first of a list is another one after list_remove(): it cannot follow that through `prev`. */
struct list *first_of(const struct list *head);
#undef list_first
#define list_first(type, head, member) container_of(first_of(head), type, member)
