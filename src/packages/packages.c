#include "packages/private.h"

#include "base/log.h"
#include "packages/requirement.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/*** A life ***/

int packages_open(uv_loop_t *loop, const struct packages_options *options, struct packages **ret,
                  struct err *err)
{
    static const char identity[] = "this shelf";
    struct shelf shelf;
    int r = shelf_open(options->dir, options->uid, &shelf, err);
    if (r < 0)
        return r;
    struct packages *packages = xcalloc(1, sizeof(*packages));
    packages->loop = loop;
    packages->options = *options;
    packages->shelf = shelf;
    packages->sets_path = xasprintf("%s/sets", options->dir);
    packages->copies_path = xasprintf("%s/copies", options->dir);
    shelf_name(&packages->shelf, identity, sizeof(identity) - 1, packages->id);
    packages->users = 1;
    list_init(&packages->jobs);
    list_init(&packages->sets);
    list_init(&packages->waits);
    *ret = packages;
    return 0;
}

struct engine_packages packages_shown(const struct packages *packages)
{
    return (struct engine_packages){ .dir = packages->sets_path,
                                     .copies = packages->copies_path,
                                     .id = packages->id };
}

void packages_start(struct packages *packages, struct engine *guests, struct engine *installers)
{
    packages->guests = guests;
    packages->installers = installers;
}

void packages_unref(struct packages *packages)
{
    if (--packages->users > 0)
        return;
    shelf_close(&packages->shelf);
    free(packages->sets_path);
    free(packages->copies_path);
    free(packages);
}

void packages_free(struct packages *packages)
{
    if (!packages)
        return;
    packages->closed = true;
    while (!list_empty(&packages->waits))
        packages_cancel(list_first(struct package_wait, &packages->waits, link));
    while (!list_empty(&packages->jobs)) {
        struct package_job *job = list_first(struct package_job, &packages->jobs, link);
        while (!list_empty(&job->waits)) {
            struct package_wait *wait = list_first(struct package_wait, &job->waits, link);
            list_remove(&wait->link);
            free(wait);
        }
        job_abort(job);
    }
    packages_unref(packages);
}

/*** Sets ***/

struct package_set *package_set_new(struct packages *packages, const char *name, int hold)
{
    struct package_set *set = xcalloc(1, sizeof(*set));
    set->packages = packages;
    packages->users++;
    set->refs = 1;
    set->hold = hold;
    (void)snprintf(set->name, sizeof(set->name), "%s", name);
    list_add_tail(&packages->sets, &set->link);
    return set;
}

struct package_set *package_set_ref(struct package_set *set)
{
    set->refs++;
    return set;
}

void package_set_shown_at(struct package_set *set, const char *shown)
{
    free(set->path);
    set->path = shown ? xstrdup(shown) : xasprintf(ENGINE_PACKAGES "/%s", set->name);
}

const char *package_set_path(const struct package_set *set)
{
    return set->path;
}

const char *package_set_name(const struct package_set *set)
{
    return set->name;
}

void package_set_release(struct package_set *set)
{
    if (!set || --set->refs > 0)
        return;
    list_remove(&set->link);
    fd_closep(&set->hold);
    packages_unref(set->packages);
    free(set->path);
    free(set);
}

static struct package_set *find_set(struct packages *packages, const char *name)
{
    list_each (struct package_set, set, &packages->sets, link)
        if (str_eq(set->name, name))
            return package_set_ref(set);
    int hold = shelf_hold(&packages->shelf, name);
    return hold < 0 ? NULL : package_set_new(packages, name, hold);
}

struct package_set *packages_hold(struct packages *packages, const char *name, const char *path)
{
    bool good = strlen(name) == SHELF_NAME_LEN && !strpbrk(name, "./") &&
                str_has_prefix(path, ENGINE_PACKAGES "/");
    struct package_set *set = good ? find_set(packages, name) : NULL;
    if (set && !set->path)
        package_set_shown_at(set, path);
    return set;
}

/* Everything that decides what comes out of an install, so that equal names mean equal sets. Which
 * version is newest changes with time: a set without exact versions is made anew now and then. */
static void name_set(const struct packages *packages, uint64_t image, char *const *requirements,
                     size_t n, char ret[static SHELF_NAME_SIZE])
{
    const struct packages_options *options = &packages->options;
    struct utsname host = { 0 };
    struct stat wheels = { 0 };
    (void)uname(&host);
    if (*options->wheels)
        (void)stat(options->wheels, &wheels); /* not ours to see any more: then by its name alone */
    auto_json *key = json_array();
    json_push(key, json_string("belljar packages 2"));
    json_push(key, json_text_value(options->python, strlen(options->python)));
    json_push(key, json_text_value(options->interpreter, strlen(options->interpreter)));
    const char *origin = engine_origin(packages->guests, image);
    json_push(key, json_text_value(origin, strlen(origin)));
    json_push(key, json_integer(options->installer));
    json_push(key, json_text_value(options->index, strlen(options->index)));
    json_push(key, json_text_value(options->wheels, strlen(options->wheels)));
    json_push(key, json_integer((json_int_t)wheels.st_mtim.tv_sec));
    json_push(key, json_integer((json_int_t)wheels.st_mtim.tv_nsec));
    json_push(key, json_boolean(options->allow_source));
    json_push(key, json_string(host.machine));
    json_push(key,
              json_integer((json_int_t)time(NULL) / (json_int_t)(options->max_age_ms / 1000 + 1)));
    for (size_t i = 0; i < n; i++)
        json_push(key, json_string(requirements[i]));
    auto_free char *text = json_text(key);
    shelf_name(&packages->shelf, text, strlen(text), ret);
}

/*** Who waits ***/

static void wait_free(struct package_wait *wait)
{
    list_remove(&wait->link);
    timer_free(wait->later);
    engine_show_cancel(wait->showing);
    package_set_release(wait->set);
    free(wait);
}

/* One that is served from the shelf, or would be. */
static void tell(struct package_wait *wait)
{
    static const char words[] = "Installed before: taken from the cache.\n";
    const struct package_events events = wait->events;
    const struct err failure = wait->failure;
    void *owner = wait->data;
    struct package_set *set = failure.code ? NULL : steal_ptr(&wait->set);
    const struct package_result result = { .set = set,
                                           .error = set ? NULL : failure.msg,
                                           .output = set ? words : "",
                                           .output_len = set ? sizeof(words) - 1 : 0,
                                           .cached = set != NULL };
    if (set)
        set->packages->stats.hits_total++;
    wait_free(wait);
    events.on_done(&result, owner);
}

static void on_later(void *data)
{
    tell(data);
}

static void on_shown(const char *path, const struct err *err, void *data)
{
    struct package_wait *wait = data;
    wait->showing = NULL;
    if (path) {
        package_set_shown_at(wait->set, path);
    } else {
        wait->failure = *err;
        (void)err_wrap(&wait->failure, "nothing was installed");
    }
    tell(wait);
}

/* It is on the shelf: see that guests see it, too. */
static void serve(struct packages *packages, struct package_wait *wait)
{
    list_add_tail(&packages->waits, &wait->link);
    wait->showing = engine_show_packages(packages->guests, wait->set->name,
                                         packages->options.timeout_ms, on_shown, wait);
    if (wait->showing)
        return;
    package_set_shown_at(wait->set, NULL);
    wait->later = timer_new(packages->loop, on_later, wait);
    timer_start(wait->later, 0);
}

static void start_next(struct packages *packages)
{
    list_each (struct package_job, job, &packages->jobs, link) {
        if (packages->closed || packages->n_running >= packages->options.max_parallel)
            return;
        if (!job->running)
            job_start(job);
    }
}

void packages_job_over(struct package_job *job)
{
    struct packages *packages = job->packages;
    list_remove(&job->link);
    packages->n_jobs--;
    packages->n_running--;
    if (job->set) {
        packages->stats.installs_total++;
        packages->stats.bytes_total += job->unpack.bytes;
    } else {
        packages->stats.failures_total++;
    }
    while (!list_empty(&job->waits)) {
        struct package_wait *wait = list_first(struct package_wait, &job->waits, link);
        const struct package_events events = wait->events;
        void *data = wait->data;
        wait_free(wait);
        const struct package_result result = {
            .set = job->set ? package_set_ref(job->set) : NULL,
            .error = job->set ? NULL : job->failure.msg,
            .output = buf_str(&job->output),
            .output_len = job->output.len,
        };
        events.on_done(&result, data);
    }
    start_next(packages);
}

static struct package_job *find_job(struct packages *packages, const char *name)
{
    list_each (struct package_job, job, &packages->jobs, link)
        if (!job->over && str_eq(job->name, name))
            return job;
    return NULL;
}

/* Takes the requirements. */
static int wait_for_job(struct packages *packages, struct package_wait *wait,
                        const struct package_image *image, const char *name, char **requirements,
                        size_t n, struct err *err)
{
    struct package_job *job = find_job(packages, name);
    size_t most = packages->options.max_parallel + packages->options.max_queue;
    if (job || packages->n_jobs < most) {
        if (job)
            requirements_free(requirements, n);
        else
            job = job_new(packages, image, name, requirements, n);
        wait->job = job;
        list_add_tail(&job->waits, &wait->link);
        start_next(packages);
        return 0;
    }
    requirements_free(requirements, n);
    return err_set(err, EAGAIN, "packages: %zu installs wait already, the limit; try again later",
                   packages->options.max_queue);
}

/* NULL and err, or the names in their normal form. */
static char **read_names(const struct packages *packages, const char *const *names, size_t n,
                         size_t *ret_n, struct err *err)
{
    if (n >= 1 && n <= packages->options.max_count)
        return requirements_normalise(names, n, ret_n, err);
    if (n == 0)
        (void)err_set(err, EINVAL, "packages: name at least one");
    else
        (void)err_set(err, EINVAL, "packages: %zu names; at most %zu in one call on this server", n,
                      packages->options.max_count);
    return NULL;
}

int packages_check(const struct packages *packages, const char *const *names, size_t n,
                   struct err *err)
{
    size_t count = 0;
    char **requirements = read_names(packages, names, n, &count, err);
    requirements_free(requirements, count);
    return requirements ? 0 : -err->code;
}

int packages_install(struct packages *packages, const struct package_image *image,
                     const char *const *names, size_t n, const struct package_events *events,
                     void *data, struct package_wait **ret, struct err *err)
{
    size_t count = 0;
    char name[SHELF_NAME_SIZE];
    char **requirements = read_names(packages, names, n, &count, err);
    if (!requirements)
        return -err->code;
    name_set(packages, image->number, requirements, count, name);

    struct package_wait *wait = xcalloc(1, sizeof(*wait));
    list_init(&wait->link);
    wait->events = *events;
    wait->data = data;
    wait->set = find_set(packages, name);
    if (wait->set) {
        requirements_free(requirements, count);
        serve(packages, wait);
    } else if (wait_for_job(packages, wait, image, name, requirements, count, err) < 0) {
        free(wait);
        return -err->code;
    }
    *ret = wait;
    return 0;
}

void packages_stats(const struct packages *packages, struct package_stats *ret)
{
    *ret = packages ? packages->stats : (struct package_stats){ 0 };
    if (packages) {
        ret->running = packages->n_running;
        ret->waiting = packages->n_jobs - packages->n_running;
    }
}

void packages_kept(const struct packages *packages, size_t *ret_sets, uint64_t *ret_bytes)
{
    shelf_size(&packages->shelf, ret_sets, ret_bytes);
}

void packages_cancel(struct package_wait *wait)
{
    struct package_job *job = wait->job;
    struct packages *packages = job ? job->packages : NULL;
    wait_free(wait);
    if (job && !job->over && list_empty(&job->waits)) {
        packages->users++; /* it may be the job that keeps it */
        job_abort(job);
        start_next(packages);
        packages_unref(packages);
    }
}
