/*
 * What the container engine is, in rows for people. Only looks: nothing is made.
 */
#include "engine/docker/private.h"

#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 5000 };

static void set(struct engine_check *check, enum engine_verdict verdict, const char *detail,
                const char *remedy)
{
    check->verdict = verdict;
    (void)snprintf(check->detail, sizeof(check->detail), "%s", detail); /* cut is fine */
    (void)snprintf(check->remedy, sizeof(check->remedy), "%s", remedy);
}

static const char *or_unknown(const char *word)
{
    return *word ? word : "unknown";
}

static void check_engine(const struct docker_facts *facts, struct engine_check *ret)
{
    auto_free char *detail =
        xasprintf("%s %s, interface %s, %s", facts->podman ? "Podman" : "Docker",
                  or_unknown(facts->version), facts->api, or_unknown(facts->arch));
    set(ret, ENGINE_OK, detail, "");
}

static void check_runtime(const struct docker_facts *facts, struct engine_check *ret)
{
    auto_free char *detail = xasprintf("%s by default, storage %s", or_unknown(facts->runtime),
                                       or_unknown(facts->storage));
    set(ret, ENGINE_OK, detail, "");
}

static void check_cgroups(const struct docker_facts *facts, struct engine_check *ret)
{
    auto_free char *detail =
        xasprintf("v%d, driver %s; limits: memory %s, swap %s, pids %s, cpu %s",
                  facts->cgroup_version, or_unknown(facts->cgroup_driver),
                  facts->memory_limit ? "yes" : "no", facts->swap_limit ? "yes" : "no",
                  facts->pids_limit ? "yes" : "no", facts->cpu_limit ? "yes" : "no");
    bool all = facts->memory_limit && facts->pids_limit && facts->cpu_limit;
    if (!all)
        set(ret, ENGINE_PROBLEM, detail,
            "Give the engine's host these cgroup controllers (rootless: systemd's Delegate=yes).");
    else if (!facts->swap_limit)
        set(ret, ENGINE_WARNING, detail,
            "Sandboxes may swap: boot the engine's host with swapaccount=1, or without swap.");
    else
        set(ret, ENGINE_OK, detail, "");
}

static void check_seccomp(const struct docker_facts *facts, struct engine_check *ret)
{
    if (facts->seccomp)
        set(ret, ENGINE_OK, "belljar's own list of system calls can be used", "");
    else
        set(ret, ENGINE_PROBLEM, "the engine does not have it",
            "Use an engine that is built with seccomp, on a kernel that has it.");
}

static void check_users(const struct docker_facts *facts, struct engine_check *ret)
{
    if (facts->rootless)
        set(ret, ENGINE_OK, "rootless: the engine is no root on its host", "");
    else if (facts->userns)
        set(ret, ENGINE_OK, "not rootless; containers have a user namespace", "");
    else
        set(ret, ENGINE_OK,
            "not rootless, without a user namespace: who reaches the engine is root on its host",
            "");
}

static const struct {
    const char *name;
    void (*run)(const struct docker_facts *facts, struct engine_check *ret);
} checks[] = {
    { "container engine", check_engine },
    { "runtime", check_runtime },
    { "cgroups", check_cgroups },
    { "seccomp", check_seccomp },
    { "users", check_users },
};
_Static_assert(ARRAY_SIZE(checks) <= ENGINE_CHECKS_MAX, "all fit");

size_t docker_checks(const struct engine_options *options,
                     struct engine_check ret[ENGINE_CHECKS_MAX])
{
    struct docker_target *target = NULL;
    struct docker_facts facts;
    struct err err = { 0 };
    int r = docker_target_new(&options->docker, &target, &err);
    if (r == 0)
        r = docker_look(&(struct prepare_options){ .target = target, .timeout_ms = LOOK_MS },
                        &facts, &err);
    docker_target_unref(target);
    if (r < 0) {
        /* Errors name the remedy behind a semicolon. */
        char *remedy = strstr(err.msg, "; ");
        if (remedy)
            *remedy = '\0';
        ret[0] = (struct engine_check){ .name = checks[0].name };
        set(&ret[0], ENGINE_PROBLEM, err.msg,
            remedy ? remedy + 2 : "see that a container engine runs there");
        return 1;
    }
    for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
        ret[i] = (struct engine_check){ .name = checks[i].name };
        checks[i].run(&facts, &ret[i]);
    }
    return ARRAY_SIZE(checks);
}
