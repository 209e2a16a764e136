/*
 * The server's own end of privilege.
 */
#include "engine/ops.h"

#include "engine/native/sys.h"

#include <errno.h>
#include <grp.h>
#include <sys/prctl.h>

static int become(const struct engine *engine, uid_t uid, gid_t gid, struct err *err)
{
    if (uid == 0 || gid == 0)
        return err_set(err, EINVAL, "the server cannot drop its privileges to uid or gid 0");
    if (setgroups(engine->keeps_group, &engine->group) < 0 || setresgid(gid, gid, gid) < 0 ||
        setresuid(uid, uid, uid) < 0)
        return err_sys(err, errno, "become uid %u", uid);
    return 0;
}

int engine_drop_privileges(const struct engine *engine, uint32_t uid, uint32_t gid, struct err *err)
{
    /* The bounding set first: it takes CAP_SETPCAP, which root loses with its uid. Without that
     * capability there is nothing to drop it with, and no_new_privs does as well. */
    for (int cap = 0; cap < 64 && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
        ;
    int r = geteuid() == 0 ? become(engine, uid, gid, err) : 0;
    if (r < 0)
        return r;
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); /* none: all the same */
    r = sys_capset(0, 0);
    if (r < 0)
        return err_sys(err, -r, "drop capabilities");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, errno, "set no_new_privs");
    return 0;
}
