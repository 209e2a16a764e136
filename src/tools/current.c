#include "tools/current.h"

#include "base/list.h"

#include <stdlib.h>

enum { CURRENT_MAX = 10000 };

struct entry {
    struct list link; /* current->entries, the newest last */
    char *owner, *session_id;
};

struct current {
    struct list entries;
    size_t count;
};

struct current *current_new(void)
{
    struct current *current = xcalloc(1, sizeof(*current));
    list_init(&current->entries);
    return current;
}

static void drop(struct current *current, struct entry *entry)
{
    list_remove(&entry->link);
    current->count--;
    free(entry->owner);
    free(entry->session_id);
    free(entry);
}

void current_add(struct current *current, const char *owner, const char *session_id)
{
    (void)current_remove(current, owner, session_id);
    if (current->count >= CURRENT_MAX)
        drop(current, list_first(struct entry, &current->entries, link));
    struct entry *entry = xcalloc(1, sizeof(*entry));
    entry->owner = xstrdup(owner);
    entry->session_id = xstrdup(session_id);
    list_add_tail(&current->entries, &entry->link);
    current->count++;
}

bool current_remove(struct current *current, const char *owner, const char *session_id)
{
    list_each (struct entry, entry, &current->entries, link) {
        if (str_eq(entry->owner, owner) && str_eq(entry->session_id, session_id)) {
            drop(current, entry);
            return true;
        }
    }
    return false;
}

const char *current_find(struct current *current, struct sessions *sessions, const char *owner)
{
    const char *found = NULL;
    list_each (struct entry, entry, &current->entries, link) {
        if (!str_eq(entry->owner, owner))
            continue;
        if (session_is_there(sessions, owner, entry->session_id))
            found = entry->session_id;
        else
            drop(current, entry);
    }
    return found;
}

void current_free(struct current *current)
{
    if (!current)
        return;
    while (!list_empty(&current->entries))
        drop(current, list_first(struct entry, &current->entries, link));
    free(current);
}
