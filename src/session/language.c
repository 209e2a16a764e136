#include "session/internal.h"

#include <strings.h>

/*
 * node: a script run from its own file would look for modules beside that file. This runs the code
 * as if it stood in /workspace, where the guest keeps what it wrote and installed.
 */
static const char NODE_RUNNER[] =
    "const fs = require('fs'), Module = require('module');"
    "const name = '/workspace/code.js', module_ = new Module(name, null);"
    "module_.filename = name;"
    "module_.paths = Module._nodeModulePaths('/workspace');"
    "process.argv = [process.argv[0], name];"
    "require.main = process.mainModule = module_;"
    "module_._compile(fs.readFileSync('" LINK_CODE_PATH "', 'utf8'), name);";

static const char *const bash_argv[] = { "bash", LINK_CODE_PATH, NULL };
static const char *const sh_argv[] = { "sh", LINK_CODE_PATH, NULL };
static const char *const node_argv[] = { "node", "-e", NODE_RUNNER, NULL };

static const struct {
    const char *name;
    const char *const *argv;
} languages[] = {
    { "bash", bash_argv },
    { "sh", sh_argv },
    { "node", node_argv },
    { "javascript", node_argv },
};

bool language_is_python(const char *language)
{
    return strcasecmp(language, "python") == 0;
}

const char *const *language_argv(const char *language)
{
    for (size_t i = 0; i < ARRAY_SIZE(languages); i++) {
        if (strcasecmp(languages[i].name, language) == 0)
            return languages[i].argv;
    }
    return NULL;
}
