/*
 * Packages of a session: installs under way, and the sets that it has got. What a session has is told
 * to its kernel with every cell, so a kernel that was started anew has it, too, and to other programs
 * by PYTHONPATH. A set that came later goes before one that came earlier.
 */
#include "session/internal.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct install {
    struct list link; /* session->packages.installs */
    struct session_ref *session;
    struct package_wait *wait;
    struct install_events events;
    void *data;
    uint64_t started_ms;
};

/*** What a session has ***/

void session_packages_init(struct session_ref *session)
{
    list_init(&session->packages.installs);
}

static bool has_set(const struct session_ref *session, const struct package_set *set)
{
    for (size_t i = 0; i < session->packages.n_sets; i++)
        if (session->packages.sets[i].set == set)
            return true;
    return false;
}

/* Takes it. */
static void add_set(struct session_ref *session, struct package_set *set)
{
    struct session_packages *packages = &session->packages;
    if (has_set(session, set)) {
        package_set_release(set);
        return;
    }
    packages->sets = xrealloc(packages->sets, (packages->n_sets + 1) * sizeof(*packages->sets));
    packages->sets[packages->n_sets++] = (struct held_set){ set };
}

json_t *session_package_sets(const struct session_ref *session)
{
    json_t *sets = json_array();
    for (size_t i = 0; i < session->packages.n_sets; i++) {
        const struct package_set *set = session->packages.sets[i].set;
        json_t *item = json_object();
        json_put_str(item, "name", package_set_name(set));
        json_put_str(item, "path", package_set_path(set));
        json_push(sets, item);
    }
    return sets;
}

bool session_take_packages(struct session_ref *session, const json_t *sets)
{
    struct packages *packages = session->sessions->options.packages;
    size_t i;
    const json_t *item;
    if (json_array_size(sets) > session->sessions->options.max_package_sets)
        return false;
    json_array_foreach(sets, i, item)
    {
        const char *name = json_str(item, "name"), *path = json_str(item, "path");
        struct package_set *set =
            packages && name && path ? packages_hold(packages, name, path) : NULL;
        if (!set)
            return false;
        add_set(session, set);
    }
    return true;
}

json_t *session_package_paths(const struct session_ref *session)
{
    json_t *paths = json_array();
    for (size_t i = session->packages.n_sets; i > 0; i--)
        json_push(paths, json_string(package_set_path(session->packages.sets[i - 1].set)));
    return paths;
}

char *session_python_path(const struct session_ref *session)
{
    static const char variable[] = "PYTHONPATH=";
    if (session->packages.n_sets == 0)
        return NULL;
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = session->packages.n_sets; i > 0; i--)
        (void)buf_printf(&text, "%s%s", text.len ? ":" : variable,
                         package_set_path(session->packages.sets[i - 1].set));
    for (char **word = session->env; *word; word++)
        if (str_has_prefix(*word, variable))
            (void)buf_printf(&text, ":%s", *word + sizeof(variable) - 1);
    return buf_steal(&text);
}

/*** Installing ***/

static void tell(struct install *install, const struct install_result *result)
{
    const struct install_events events = install->events;
    void *data = install->data;
    list_remove(&install->link);
    free(install);
    events.on_done(result, data);
}

static void on_output(const char *bytes, size_t len, void *data)
{
    const struct install *install = data;
    if (install->events.on_output)
        install->events.on_output(bytes, len, install->data);
}

static void on_done(const struct package_result *result, void *data)
{
    struct install *install = data;
    install->session->last_used_ms = clock_ms();
    if (result->set) {
        add_set(install->session, result->set);
        session_note(install->session);
    }
    const struct install_result told = {
        .ok = result->set != NULL,
        .error = result->error,
        .output = result->output,
        .output_len = result->output_len,
        .duration_ms = (double)(clock_ms() - install->started_ms),
        .cached = result->cached,
    };
    tell(install, &told);
}

static size_t count_installs(const struct session_ref *session)
{
    size_t count = 0;
    list_each (struct install, install, &session->packages.installs, link)
        count++;
    return count;
}

static size_t installs_of_owner(const struct session_ref *session)
{
    size_t count = 0;
    list_each (struct session_ref, other, &session->sessions->all, link)
        count += str_eq(other->owner, session->owner) ? count_installs(other) : 0;
    return count;
}

static int refuse_all(struct err *err)
{
    return err_set(err, EOPNOTSUPP, "packages cannot be installed on this server");
}

int sessions_check_packages(const struct sessions *sessions, const char *const *packages, size_t n,
                            struct err *err)
{
    return sessions->options.packages ? packages_check(sessions->options.packages, packages, n, err)
                                      : refuse_all(err);
}

int session_install_in(struct session_ref *session, const char *const *packages, size_t n,
                       const struct install_events *events, void *data, struct install **ret,
                       struct err *err)
{
    static const struct package_events package_events = { .on_output = on_output,
                                                          .on_done = on_done };
    const struct session_options *options = &session->sessions->options;
    if (!options->packages)
        return refuse_all(err);
    size_t times = session->packages.n_sets + count_installs(session);
    if (installs_of_owner(session) >= options->max_installs_per_owner)
        return err_set(err, EAGAIN, "%zu of your installs are under way, the limit; wait for one",
                       options->max_installs_per_owner);
    if (times >= options->max_package_sets)
        return err_set(err, EAGAIN,
                       "packages were installed %zu times in this session, the limit; start a new "
                       "one and name all packages at once",
                       times);
    struct install *install = xcalloc(1, sizeof(*install));
    install->session = session;
    install->events = *events;
    install->data = data;
    install->started_ms = clock_ms();
    const struct package_image image = { session->image, session_image(session) };
    int r = packages_install(options->packages, &image, packages, n, &package_events, install,
                             &install->wait, err);
    if (r < 0) {
        free(install);
        return r;
    }
    list_add_tail(&session->packages.installs, &install->link);
    *ret = install;
    return 0;
}

int session_install(struct sessions *sessions, const char *owner, const char *session_id,
                    const char *const *packages, size_t n, const struct install_events *events,
                    void *data, struct install **ret, struct err *err)
{
    struct session_ref *session =
        session_find_or_reopen(sessions, owner, session_id, /* plan= */ NULL, USE_PYTHON, err);
    if (!session)
        return -err->code;
    return session_install_in(session, packages, n, events, data, ret, err);
}

static void stop(struct install *install, const char *why)
{
    packages_cancel(install->wait);
    const struct install_result told = {
        .error = why,
        .output = "",
        .duration_ms = (double)(clock_ms() - install->started_ms),
    };
    tell(install, &told);
}

void install_cancel(struct install *install)
{
    stop(install, "nothing was installed: it was cancelled");
}

bool session_is_installing(const struct session_ref *session)
{
    return !list_empty(&session->packages.installs);
}

void session_packages_done(struct session_ref *session, const char *why)
{
    struct session_packages *packages = &session->packages;
    while (!list_empty(&packages->installs))
        stop(list_first(struct install, &packages->installs, link), why);
    for (size_t i = 0; i < packages->n_sets; i++)
        package_set_release(packages->sets[i].set);
    free(packages->sets);
    *packages = (struct session_packages){ 0 };
    list_init(&packages->installs);
}

/*** For a cell: %pip install ***/

static void answer(struct session_ref *session, bool ok, const char *error)
{
    struct err err = { 0 };
    auto_json *reply = json_object();
    json_put_str(reply, "op", "installed");
    json_put(reply, "id", json_integer((json_int_t)session->cell_number));
    json_put(reply, "ok", json_boolean(ok));
    json_put(reply, "error", error ? json_text_value(error, strlen(error)) : json_null());
    json_put(reply, "paths", session_package_paths(session));
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    (void)json_write(&text, reply);
    if (link_kernel_send(session->agent, text.data, text.len, &err) < 0)
        link_kernel_kill(session->agent);
}

static void on_cell_output(const char *bytes, size_t len, void *data)
{
    struct session_ref *session = data;
    if (session->cell)
        run_on_output(session->cell, LINK_STDOUT, bytes, len);
}

static void on_cell_installed(const struct install_result *result, void *data)
{
    struct session_ref *session = data;
    session->packages.of_cell = NULL;
    if (!session->cell || session->state == SESSION_ENDED)
        return; /* whoever asked is gone */
    if (result->cached)
        run_on_output(session->cell, LINK_STDOUT, result->output, result->output_len);
    run_resume(session->cell);
    answer(session, result->ok, result->error);
}

void session_install_for_cell(struct session_ref *session, const json_t *message)
{
    static const struct install_events events = { .on_output = on_cell_output,
                                                  .on_done = on_cell_installed };
    const json_t *names = json_object_get(message, "packages");
    size_t n = json_array_size(names);
    struct err err = { 0 };
    if (session->packages.of_cell) /* one at a time; a guest who forges another gets no answer */
        return;
    const char **texts = xcalloc(n + 1, sizeof(*texts));
    for (size_t i = 0; i < n; i++) {
        const json_t *name = json_array_get(names, i);
        bool good =
            json_is_string(name) && strlen(json_string_value(name)) == json_string_length(name);
        texts[i] = good ? json_string_value(name) : "";
    }
    int r =
        session_install_in(session, texts, n, &events, session, &session->packages.of_cell, &err);
    free(texts);
    if (r < 0)
        answer(session, false, err.msg);
    else
        run_pause(session->cell); /* it has a time limit of its own */
}

static void on_nobody(const struct install_result *result, void *data)
{
    (void)result, (void)data;
}

/* The cell that asked has ended, was interrupted or killed. */
void session_cell_gone(struct session_ref *session)
{
    struct install *install = steal_ptr(&session->packages.of_cell);
    if (install) {
        install->events.on_done = on_nobody;
        install_cancel(install);
    }
}
