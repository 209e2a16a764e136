#include "tools/parked.h"

#include "base/list.h"

#include <stdlib.h>

enum { PARKED_MAX = 1000 };

struct entry {
    struct list link; /* parked->entries, the oldest first */
    char *owner, *session_id;
};

struct parked {
    struct list entries;
    size_t count;
};

struct parked *parked_new(void)
{
    struct parked *parked = xcalloc(1, sizeof(*parked));
    list_init(&parked->entries);
    return parked;
}

static struct entry *find(const struct parked *parked, const char *owner, const char *session_id)
{
    list_each (struct entry, entry, &parked->entries, link) {
        if (str_eq(entry->owner, owner) && str_eq(entry->session_id, session_id))
            return entry;
    }
    return NULL;
}

static void drop(struct parked *parked, struct entry *entry)
{
    list_remove(&entry->link);
    parked->count--;
    free(entry->owner);
    free(entry->session_id);
    free(entry);
}

void parked_add(struct parked *parked, const char *owner, const char *session_id)
{
    parked_remove(parked, owner, session_id);
    if (parked->count >= PARKED_MAX)
        drop(parked, list_first(struct entry, &parked->entries, link));
    struct entry *entry = xcalloc(1, sizeof(*entry));
    entry->owner = xstrdup(owner);
    entry->session_id = xstrdup(session_id);
    list_add_tail(&parked->entries, &entry->link);
    parked->count++;
}

void parked_remove(struct parked *parked, const char *owner, const char *session_id)
{
    struct entry *entry = find(parked, owner, session_id);
    if (entry)
        drop(parked, entry);
}

bool parked_has(const struct parked *parked, const char *owner, const char *session_id)
{
    return find(parked, owner, session_id) != NULL;
}

void parked_free(struct parked *parked)
{
    if (!parked)
        return;
    while (!list_empty(&parked->entries))
        drop(parked, list_first(struct entry, &parked->entries, link));
    free(parked);
}
