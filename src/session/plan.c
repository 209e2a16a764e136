/*
 * What a session's guests are given beside a sandbox: an environment, and for the kernel a
 * configuration. Both come from the operator and from whoever made the session; the latter may add
 * variables and narrow the import policy.
 */
#include "session/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*** Rules ***/

static bool is_name(const char *text)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    return *text && !isdigit((unsigned char)*text) && !text[strspn(text, allowed)];
}

/* Names that decide how belljar itself starts a language: another value would break runs, not change
 * them. A run that wants one can set it for what it starts. */
static bool is_reserved(const char *name)
{
    static const char *const names[] = { "PATH",     "PYTHONHOME", "BASH_ENV", "ENV",   "SHELLOPTS",
                                         "BASHOPTS", "IFS",        "PWD",      "OLDPWD" };
    static const char *const prefixes[] = { "LD_", "BELLJAR_" };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (str_eq(names[i], name))
            return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        if (str_has_prefix(name, prefixes[i]))
            return true;
    }
    return false;
}

static int check_variable(const char *name, const json_t *value, struct err *err)
{
    auto_free char *shown = text_quote(name, 64);
    if (!is_name(name) || strlen(name) > SESSION_ENV_NAME_MAX)
        return err_set(
            err, EINVAL,
            "env: %s is no name for a variable; use letters, digits and '_', not a digit "
            "first, at most %d",
            shown, SESSION_ENV_NAME_MAX);
    if (is_reserved(name))
        return err_set(err, EINVAL, "env: %s is reserved; set it in the code instead", shown);
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return err_set(err, EINVAL, "env: %s must be a text without NUL bytes", shown);
    return 0;
}

bool session_id_is_valid(const char *id)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    size_t len = strspn(id, allowed);
    return len >= 1 && len <= SESSION_ID_MAX && !id[len];
}

int session_check_env(const json_t *env, struct err *err)
{
    const char *name;
    json_t *value;
    size_t bytes = 0;
    if (!env)
        return 0;
    if (!json_is_object(env))
        return err_set(err, EINVAL, "env: must be an object of names and texts");
    if (json_object_size(env) > SESSION_ENV_COUNT)
        return err_set(err, EINVAL, "env: %zu variables, the limit is %d", json_object_size(env),
                       SESSION_ENV_COUNT);
    json_object_foreach((json_t *)env, name, value)
    {
        int r = check_variable(name, value, err);
        if (r < 0)
            return r;
        bytes += strlen(name) + json_string_length(value) + 2;
    }
    if (bytes > SESSION_ENV_BYTES)
        return err_set(err, EINVAL, "env: %zu bytes, the limit is %d", bytes, SESSION_ENV_BYTES);
    return 0;
}

/* "numpy" or "os.path" */
static bool is_module(const json_t *value)
{
    const char *text = json_string_value(value);
    if (!text || strlen(text) != json_string_length(value) || strlen(text) > SESSION_MODULE_MAX)
        return false;
    auto_free char *words = xstrdup(text);
    for (char *word = words;;) {
        char *dot = strchr(word, '.');
        if (dot)
            *dot = '\0';
        if (!is_name(word))
            return false;
        if (!dot)
            return true;
        word = dot + 1;
    }
}

int session_check_modules(const json_t *modules, const char *field, struct err *err)
{
    size_t i;
    json_t *module;
    if (!modules)
        return 0;
    if (!json_is_array(modules) || json_array_size(modules) > SESSION_MODULES)
        return err_set(err, EINVAL, "%s: must be a list of at most %d names", field,
                       SESSION_MODULES);
    json_array_foreach(modules, i, module)
    {
        if (!is_module(module)) {
            const char *text = json_string_value(module);
            auto_free char *shown = text_quote(text ? text : "", 64);
            return err_set(err, EINVAL, "%s: %s is no name of a module such as numpy or os.path",
                           field, shown);
        }
    }
    return 0;
}

/*** Making ***/

static bool has_items(const json_t *list)
{
    return json_array_size(list) > 0;
}

static void add_policy(json_t *policies, const char *owner, const json_t *allowed,
                       const json_t *blocked)
{
    if (!has_items(allowed) && !has_items(blocked))
        return;
    json_t *policy = json_object();
    json_put_str(policy, "owner", owner);
    json_put(policy, "allowed", allowed ? json_deep_copy(allowed) : json_array());
    json_put(policy, "blocked", blocked ? json_deep_copy(blocked) : json_array());
    json_push(policies, policy);
}

static char **env_words(const json_t *env)
{
    const char *name;
    json_t *value;
    size_t count = 0;
    char **words = xcalloc(json_object_size(env) + 1, sizeof(*words));
    json_object_foreach((json_t *)env, name, value) words[count++] =
        xasprintf("%s=%s", name, json_string_value(value));
    return words;
}

void plan_done(struct session_ref *session)
{
    for (char **word = session->env; word && *word; word++)
        free(*word);
    free(session->env);
    json_decref(session->kernel_config);
    session->env = NULL;
    session->kernel_config = NULL;
}

static bool wants_image(const struct session_plan *plan)
{
    return plan->image && *plan->image;
}

/* The number of images when it is none of them. */
static size_t find_image(const struct session_options *options, const char *name)
{
    size_t i = 0;
    while (i < options->n_images && !str_eq(options->images[i], name))
        i++;
    return i;
}

static int check_image(const struct session_options *options, const struct session_plan *plan,
                       struct err *err)
{
    if (!wants_image(plan) || find_image(options, plan->image) < options->n_images)
        return 0;
    if (options->n_images < 2)
        return err_set(err, EINVAL, "image: there is nothing to choose on this server");
    auto_buf names = BUF_INIT(BUF_NO_CEILING);
    for (size_t i = 0; i < options->n_images; i++)
        (void)buf_printf(&names, "%s%s", i ? ", " : "", options->images[i]);
    return err_set(err, EINVAL, "image: must be one of %.400s", buf_str(&names));
}

const char *session_image(const struct session_ref *session)
{
    const struct session_options *options = &session->sessions->options;
    return options->n_images ? options->images[session->image] : NULL;
}

size_t plan_image(const struct sessions *sessions, const struct session_plan *plan)
{
    return wants_image(plan) ? find_image(&sessions->options, plan->image) : 0;
}

int plan_check(const struct sessions *sessions, const struct session_plan *plan, struct err *err)
{
    int r = check_image(&sessions->options, plan, err);
    if (r == 0)
        r = session_check_env(plan->env, err);
    if (r == 0)
        r = session_check_modules(plan->allowed_modules, "allowed_modules", err);
    if (r == 0)
        r = session_check_modules(plan->blocked_modules, "blocked_modules", err);
    return r;
}

void plan_take_again(struct session_ref *session, const json_t *kernel_config)
{
    size_t image = session->image;
    plan_done(session);
    session->image = image;
    session->kernel_config = json_deep_copy(kernel_config);
    session->env = env_words(json_object_get(kernel_config, "env"));
}

void plan_take(struct session_ref *session, const struct session_plan *plan)
{
    const struct session_options *options = &session->sessions->options;
    plan_done(session);
    session->image = plan_image(session->sessions, plan);
    json_t *env = options->env ? json_deep_copy(options->env) : json_object();
    json_t *policies = json_array();
    if (plan->env)
        (void)json_object_update(env, (json_t *)plan->env); /* strings, which nobody changes */
    add_policy(policies, "this server", options->allowed_modules, options->blocked_modules);
    add_policy(policies, "this session", plan->allowed_modules, plan->blocked_modules);
    session->env = env_words(env);
    session->kernel_config = json_object();
    json_put(session->kernel_config, "env", env);
    json_put(session->kernel_config, "policies", policies);
}
