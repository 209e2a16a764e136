#include "engine/native/leaves.h"

#include "engine/native/host.h"

#include <errno.h>
#include <string.h>

static void take_spare(struct leaves *leaves, struct leaf *ret)
{
    *ret = (struct leaf){ .made = true,
                          .number = leaves->spare[0].number,
                          .used = true,
                          .before = leaves->spare[0].limits };
    memmove(&leaves->spare[0], &leaves->spare[1], --leaves->n_spare * sizeof(leaves->spare[0]));
}

int leaves_take(struct leaves *leaves, uint64_t now_ms, struct leaf *ret)
{
    unsigned number = 0;
    bool rested = leaves->n_spare && now_ms - leaves->spare[0].since_ms >= LEAVES_REST_MS;
    while (number < leaves->slots && leaves->taken[number])
        number++;
    if (rested || leaves->n_spare >= LEAVES_SPARE_MANY ||
        (leaves->n_spare && number == leaves->slots)) {
        take_spare(leaves, ret);
        return 0;
    }
    if (number == leaves->slots)
        return -EAGAIN; /* some are lost, for a directory could not be removed */
    int r = cgroup_make_leaf(leaves->cgroups, number,
                             leaves->own_uids ? host_agent_uid(number) : (uid_t)-1);
    leaves->taken[number] = r == 0;
    *ret = (struct leaf){ .made = r == 0, .number = number };
    return r;
}

struct cgroup_names leaves_names(const struct leaves *leaves, const struct leaf *leaf,
                                 unsigned slot)
{
    return (struct cgroup_names){ .slot = slot,
                                  .leaf = leaves->cgroups->kind == CGROUP_V2 ? slot : leaf->number,
                                  .before = leaf->used ? &leaf->before : NULL };
}

int leaves_retire(struct leaves *leaves, struct leaf *leaf, unsigned slot,
                  const struct sandbox_limits *limits, uint64_t now_ms)
{
    const struct cgroups *cgroups = leaves->cgroups;
    int r = leaf->made ? cgroup_renew_leaf(cgroups, leaf->number) : -ESTALE;
    if (r == -EBUSY)
        return r;
    bool keep = r == 0 && leaves->n_spare < LEAVES_SPARE;
    r = keep ? cgroup_keep(cgroups, leaves_names(leaves, leaf, slot))
             : cgroup_remove(cgroups, slot);
    if (r < 0)
        return r;
    if (keep) {
        leaves->spare[leaves->n_spare].number = leaf->number;
        leaves->spare[leaves->n_spare].since_ms = now_ms;
        leaves->spare[leaves->n_spare++].limits = *limits;
    } else if (leaf->made) {
        leaves->taken[leaf->number] = cgroup_remove_leaf(cgroups, leaf->number) < 0;
    }
    leaf->made = false;
    return 0;
}
