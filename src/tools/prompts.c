/*
 * Prompts: what a model should know to use the server well, as a message that a person can put before
 * a task.
 */
#include "tools/icons.h"
#include "tools/tools.h"

#include "base/buf.h"

static const char GUIDE[] =
    "You can run code with the belljar tools. How to work with them well:\n"
    "\n"
    "1. Run code with execute_code. Python is the default; bash, sh and node work too. Look at "
    "real "
    "data and run real checks instead of guessing what code would do.\n"
    "2. The first result names a session_id. Pass it to every later call of the same task: then "
    "variables, imports and functions (Python) and all files in /workspace are still there, also "
    "between languages. Without it each call starts a new, empty session.\n"
    "3. Work in small steps. The value of a cell's last expression is returned without print(). "
    "Plots (matplotlib, seaborn, plotly) and images come back by themselves; plt.show() is not "
    "needed.\n"
    "4. A failed run is information, not a dead end: outcome says how it ended (error, timeout, "
    "memory_limit, ...), error and traceback say why. State from before the failure is kept unless "
    "the result says otherwise. Fix the cause and go on in the same session.\n"
    "5. Much is installed: numpy, pandas, scipy, matplotlib, scikit-learn and more. For other "
    "Python packages call install_packages, or write %pip install NAME in the code. Apart from "
    "that "
    "there is no network: no downloads, no web requests. input() does not work; put values into "
    "the "
    "code.\n"
    "6. Keep files in /workspace. To give a file to the sandbox use sandbox_write_file; to get one "
    "back use sandbox_read_file, list_session_files, or read the resource kernel://SESSION/PATH. "
    "Files that a run made are listed in its result.\n"
    "7. Print summaries, not dumps: df.head(), shapes, counts. Long output is cut in the middle; "
    "the "
    "result then names a file that holds all of it, which you can read in parts or process with "
    "code.\n"
    "8. Long work: pass timeout (seconds) up to the server's limit, or split it. At a timeout the "
    "code is interrupted and what it printed so far is returned.\n"
    "9. When the task is done and its files are not needed any more, call clear_session.\n";

static void get_guide(struct mcp_call *call, const json_t *args, void *data)
{
    const char *task = json_str(args, "task");
    auto_buf text = BUF_INIT(BUF_NO_CEILING);
    (void)data;
    (void)buf_add_str(&text, GUIDE);
    if (task && *task)
        (void)buf_printf(&text, "\nThe task:\n\n%s\n", task);
    mcp_call_add_message(call, "user", mcp_text(text.data, text.len));
    mcp_call_finish(call);
}

static const struct mcp_prompt_arg guide_args[] = {
    { .name = "task", .title = "Task", .description = "What is to be done; put behind the guide." },
    { 0 },
};

const struct mcp_prompt prompt_run_code = {
    .name = "run_code",
    .title = "Work with code",
    .description =
        "How to use belljar well: sessions, files, plots, errors, limits. With a task, the "
        "task follows.",
    .args = guide_args,
    .icons = icon_run,
    .get = get_guide,
};
