/*
 * install_packages: Python packages for a session.
 */
#include "tools/packages.h"

#include "tools/icons.h"

#include "base/text.h"
#include "tools/progress.h"
#include "tools/tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*** For several tools ***/

struct installation {
    struct mcp_call *call;
    char *session_id;
    struct install *install;
    struct progress *progress;
    packages_installed_fn *on_installed;
    void *data;
};

static void installation_free(struct installation *installation)
{
    progress_free(installation->progress);
    free(installation->session_id);
    free(installation);
}

static void on_output(const char *bytes, size_t len, void *data)
{
    const struct installation *installation = data;
    progress_add(installation->progress, LINK_STDOUT, bytes, len);
}

static void on_done(const struct install_result *result, void *data)
{
    struct installation *installation = data;
    auto_free char *session_id = steal_ptr(&installation->session_id);
    const struct installation copy = *installation;
    installation_free(installation);
    mcp_call_defer(copy.call, NULL, NULL); /* there is nothing left to cancel */
    copy.on_installed(copy.call, session_id, result, copy.data);
}

static void on_cancel(struct mcp_call *call, void *data)
{
    const struct installation *installation = data;
    (void)call;
    install_cancel(installation->install); /* on_done finishes the call */
}

static int install(struct mcp_call *call, const struct toolbox *box, const char *session_id,
                   const struct str_list *packages, packages_installed_fn *on_installed, void *data,
                   struct err *err)
{
    static const struct install_events events = { .on_output = on_output, .on_done = on_done };
    if (mcp_call_cancelled(call))
        return err_set(err, ECANCELED, "cancelled");
    struct installation *installation = xcalloc(1, sizeof(*installation));
    *installation = (struct installation){ .call = call,
                                           .session_id = xstrdup(session_id),
                                           .progress = progress_new(box, call),
                                           .on_installed = on_installed,
                                           .data = data };
    int r = session_install(box->sessions, mcp_call_owner(call), session_id, packages->items,
                            packages->count, &events, installation, &installation->install, err);
    if (r < 0)
        installation_free(installation);
    else
        mcp_call_defer(call, on_cancel, installation);
    return r;
}

int packages_install_for_call(struct mcp_call *call, const struct toolbox *box,
                              const char *session_id, const struct str_list *packages,
                              packages_installed_fn *on_installed, struct err *err)
{
    return install(call, box, session_id, packages, on_installed, (void *)box, err);
}

void packages_add_output(struct mcp_call *call, const struct install_result *result)
{
    auto_buf output = BUF_INIT(BUF_NO_CEILING);
    toolbox_add_text(&output, result->output, result->output_len);
    if (output.len > strlen(result->error))
        mcp_call_add(call, mcp_text(output.data, output.len));
}

/*** With a session made for it ***/

int packages_can_install(const struct toolbox *box, const struct str_list *packages,
                         struct err *err)
{
    return packages->count
               ? sessions_check_packages(box->sessions, packages->items, packages->count, err)
               : 0;
}

/* A call that waits for its sandbox, and then for its packages. */
struct order {
    struct mcp_call *call;
    const struct toolbox *box;
    struct str_list packages;
    enum packages_keep keep;
    packages_installed_fn *on_installed;
};

static void order_end(struct order *order, const char *session_id,
                      const struct install_result *result)
{
    const struct order copy = *order;
    free(order);
    bool stays = copy.keep == PACKAGES_KEEP || (copy.keep == PACKAGES_KEEP_WHOLE && result->ok);
    if (session_id && !stays)
        (void)session_close(copy.box->sessions, mcp_call_owner(copy.call), session_id);
    copy.on_installed(copy.call, session_id, result, (void *)copy.box);
}

static void order_fail(struct order *order, const char *session_id, const char *why)
{
    const struct install_result result = { .error = why, .output = "" };
    order_end(order, session_id, &result);
}

static void on_order_installed(struct mcp_call *call, const char *session_id,
                               const struct install_result *result, void *data)
{
    (void)call;
    order_end(data, session_id, result);
}

static void on_open(const char *session_id, const struct err *err, void *data)
{
    struct order *order = data;
    struct err refused = { 0 };
    if (!session_id) {
        order_fail(order, NULL, err->msg);
        return;
    }
    auto_free char *id = xstrdup(session_id);
    const struct install_result nothing = { .ok = true, .output = "" };
    if (order->packages.count == 0)
        order_end(order, id, &nothing);
    else if (install(order->call, order->box, id, &order->packages, on_order_installed, order,
                     &refused) < 0)
        order_fail(order, id, refused.msg);
}

int packages_install_with_session(struct mcp_call *call, const struct toolbox *box,
                                  const struct session_plan *plan, const struct str_list *packages,
                                  enum packages_keep keep, packages_installed_fn *on_installed,
                                  struct err *err)
{
    struct order *order = xcalloc(1, sizeof(*order));
    *order = (struct order){ call, box, *packages, keep, on_installed };
    mcp_call_defer(call, NULL, NULL);
    int r = (keep == PACKAGES_KEEP ? session_ensure : session_open)(
        box->sessions, mcp_call_owner(call), plan, on_open, order, err);
    if (r < 0)
        free(order);
    return r;
}

/*** install_packages ***/

struct install_args {
    struct str_list packages;
    const char *session_id;
};
static const struct field install_fields[] = {
    FIELD_STRS(struct install_args, packages, PACKAGES_HELP, .required = true, .min_len = 1,
               .max_len = PACKAGES_MAX, .item_max_len = PACKAGE_LEN_MAX),
    FIELD_STR(struct install_args, session_id,
              "Session to install into. Leave out (or \"\" or \"0\") to start a new session.",
              .max_len = SESSION_ID_MAX),
    FIELD_END,
};
static const struct shape install_input = SHAPE(struct install_args, install_fields);

struct install_view {
    bool success;
    const char *session_id;
    bool cached;
    double duration_ms;
    const char *output;
};
static const struct field view_fields[] = {
    FIELD_BOOL(struct install_view, success, "The packages can be imported.", .required = true),
    FIELD_STR(struct install_view, session_id, "Use it to go on in this session.",
              .required = true),
    FIELD_BOOL(struct install_view, cached, "The same packages had been installed before.",
               .required = true),
    FIELD_REAL(struct install_view, duration_ms, "How long it took.", .required = true),
    FIELD_STR(struct install_view, output, "What the installer said.", .required = true),
    FIELD_END,
};
static const struct shape install_output = SHAPE(struct install_view, view_fields);

static void finish(struct mcp_call *call, const char *session_id,
                   const struct install_result *result)
{
    auto_buf output = BUF_INIT(BUF_NO_CEILING);
    toolbox_add_text(&output, result->output, result->output_len);
    const struct install_view view = {
        .success = true,
        .session_id = session_id,
        .cached = result->cached,
        .duration_ms = result->duration_ms,
        .output = buf_str(&output),
    };
    mcp_call_add(call, mcp_textf("%s[session_id] %s\n", buf_str(&output), session_id));
    mcp_call_structured(call, &view);
    mcp_call_finish(call);
}

static void on_installed(struct mcp_call *call, const char *session_id,
                         const struct install_result *result, void *data)
{
    (void)data;
    if (result->ok) {
        finish(call, session_id, result);
        return;
    }
    packages_add_output(call, result);
    mcp_call_fail(call, "install_packages: %s", result->error);
}

static void install_packages(struct mcp_call *call, const void *arguments, void *data)
{
    const struct install_args *args = arguments;
    const struct toolbox *box = data;
    const char *id = args->session_id;
    bool fresh = !id || !*id || str_eq(id, "0");
    struct err err = { 0 };
    mcp_call_defer(call, NULL, NULL);
    int r = fresh ? packages_can_install(box, &args->packages, &err)
                  : packages_install_for_call(call, box, id, &args->packages, on_installed, &err);
    if (r == 0 && fresh)
        r = packages_install_with_session(call, box, NULL, &args->packages, PACKAGES_KEEP_WHOLE,
                                          on_installed, &err);
    if (r < 0)
        mcp_call_fail(call, "install_packages: %s", err.msg);
}

const struct mcp_tool tool_install_packages = {
    .name = "install_packages",
    .title = "Install packages",
    .description =
        "Installs Python packages for a session; its next run can import them. Much is there "
        "without: numpy, pandas, scipy, matplotlib, scikit-learn and more. In Python code "
        "`%pip install NAME` does the same.",
    .input = &install_input,
    .output = &install_output,
    .hints = MCP_OPEN_WORLD,
    .icons = icon_package,
    .call = install_packages,
};
