#include "session/internal.h"

#include <strings.h>

/*
 * node: a script run from its own file would look for modules beside that file. This runs the code
 * as if it stood in /workspace, where the guest keeps what it wrote and installed: as a script; what
 * awaits outside of functions, as the body of one; and what is only right as a module, from a file
 * there that is gone before its first line runs. The stack of an error that nobody catches shows the
 * guest's frames, without node's own and without this.
 */
static const char NODE_RUNNER[] =
    "const fs = require('fs'), vm = require('vm'), Module = require('module');"
    "const name = '/workspace/code.js', module_ = new Module(name, null);"
    "module_.filename = name;"
    "module_.paths = Module._nodeModulePaths('/workspace');"
    "process.argv = [process.argv[0], name];"
    "require.main = process.mainModule = module_;"
    "const code = fs.readFileSync('" LINK_CODE_PATH "', 'utf8').replace(/^#!.*/, '');"
    "const file = `/workspace/.code-${process.pid}.mjs`;"
    "process.on('uncaughtExceptionMonitor', (e) => { try {"
    "  const ours = /^ +at .*(node:internal\\/|\\[eval\\])/;"
    "  const kept = e.stack.replaceAll('file://' + file, name).split('\\n')"
    "    .filter((line) => !ours.test(line));"
    "  if (kept.some((line) => /^ +at /.test(line))) e.stack = kept.join('\\n');"
    "} catch {} });"
    "const parses = (text) => { try { new vm.Script(text); return true; } catch { return false; } "
    "};"
    "const body = `(async () => {${code}\\n})();`;"
    "if (parses(Module.wrap(code))) module_._compile(code, name);"
    "else if (parses(body)) module_._compile(body, name);"
    "else if (/^\\s*(import|export)\\b/m.test(code)) {"
    "  const gone = () => fs.rmSync(file, { force: true });"
    "  fs.writeFileSync(file, `process.emit('belljar:loaded');${code}`, { flag: 'wx' });"
    "  process.once('belljar:loaded', gone);"
    "  import('file://' + file).catch((e) => { gone(); throw e; });"
    "} else module_._compile(code, name);";

/*
 * bash and sh: what a run leaves (directory, exported variables) is written to a file of the guest's
 * when its shell ends, and read when the next one begins. The code's first line begins with an eval of
 * this, so that $0, numbers of lines and exit statuses are those of a plain script. All of it is the
 * guest's: one that breaks it, or sets a trap for EXIT of its own, only keeps nothing itself. The file
 * is replaced whole, for a shell may be killed at any time.
 */
#define SHELL_STATE "/tmp/.belljar-shell"
static const char SHELL_RC[] =
    "BELLJAR_RC="
    "unset BELLJAR_RC\n"
    "__belljar_save() {\n"
    "  { set +eux; } 2>/dev/null\n"
    "  export PWD OLDPWD\n"
    "  [ -z \"${BASH_VERSION-}\" ] || set -o posix\n" /* so that sh can read it, too */
    "  export -p >|" SHELL_STATE ".new && command mv -f " SHELL_STATE ".new " SHELL_STATE "\n"
    "}\n"
    "if [ -r " SHELL_STATE " ]; then\n"
    "  . " SHELL_STATE "\n"
    "  __belljar_old=${OLDPWD-}\n"
    "  cd \"$PWD\" || cd /workspace\n"
    "  OLDPWD=$__belljar_old\n"
    "  unset __belljar_old\n"
    "fi 2>/dev/null\n"
    "trap '{ __belljar_save; } 2>/dev/null' EXIT\n";
const char language_shell_prefix[] = "eval \"$BELLJAR_RC\"; ";

static const char *const bash_argv[] = { "bash", LINK_CODE_PATH, NULL };
static const char *const sh_argv[] = { "sh", LINK_CODE_PATH, NULL };
static const char *const node_argv[] = { "node", "-e", NODE_RUNNER, NULL };

static const struct {
    const char *name;
    const char *const *argv;
    const char *shell_rc;
} languages[] = {
    { "bash", bash_argv, SHELL_RC },
    { "sh", sh_argv, SHELL_RC },
    { "node", node_argv, NULL },
    { "javascript", node_argv, NULL },
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

const char *language_shell_rc(const char *language)
{
    for (size_t i = 0; i < ARRAY_SIZE(languages); i++) {
        if (strcasecmp(languages[i].name, language) == 0)
            return languages[i].shell_rc;
    }
    return NULL;
}
