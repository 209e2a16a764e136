/*
 * list: intrusive doubly linked lists. A `struct list` is a head or a link inside a struct; an
 * unlinked link points to itself, so removing twice does no harm.
 *
 *     struct list calls = LIST_INIT(calls);
 *     list_add_tail(&calls, &call->link);
 *     list_each (struct mcp_call, call, &calls, link) { … the current one may be removed … }
 */
#ifndef BELLJAR_BASE_LIST_H
#define BELLJAR_BASE_LIST_H

#include "base/base.h"

struct list {
    struct list *prev, *next;
};

/* clang-format off */
#define LIST_INIT(name) { &(name), &(name) }
/* clang-format on */

static inline void list_init(struct list *list)
{
    list->prev = list->next = list;
}

static inline bool list_empty(const struct list *list)
{
    return list->next == list;
}

static inline void list_add_tail(struct list *head, struct list *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void list_remove(struct list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

/* Safe against removal of the current element, not of the one after it. */
#define list_each(type, var, head, member)                                                         \
    for (struct list *var##_at = (head)->next, *var##_next = var##_at->next; var##_at != (head);   \
         var##_at = var##_next, var##_next = var##_at->next)                                       \
        for (type *var = container_of(var##_at, type, member); var; var = NULL)

#define list_first(type, head, member) container_of((head)->next, type, member)

#endif
