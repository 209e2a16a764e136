/*
 * The part of config that touches the host: reads files and the process's environment.
 */
#include "base/buf.h"
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKEN_FILE_MAX = 4096, MAX_FILES = 2 };

static const char system_file[] = "/etc/belljar/config.yaml";

/* The whole file, at most `max` bytes and one more: by that the caller sees that it is too long. */
static int read_file(const char *path, size_t max, struct buf *ret, struct err *err)
{
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return err_sys(err, errno, "open %s", path);
    while (ret->len <= max) {
        char *room = buf_room(ret, max + 1 - ret->len);
        ssize_t got = read(fd, room, max + 1 - ret->len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, errno, "read %s", path);
        if (got == 0)
            break;
        buf_added(ret, (size_t)got);
    }
    return 0;
}

/* NULL: this user has no home. A relative XDG_CONFIG_HOME is to be ignored, says its standard. */
static char *user_file(void)
{
    const char *xdg = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    if (xdg && xdg[0] == '/')
        return xasprintf("%s/belljar/config.yaml", xdg);
    if (home && home[0] == '/')
        return xasprintf("%s/.config/belljar/config.yaml", home);
    return NULL;
}

/* The files to read, and their texts. */
struct files {
    char *paths[MAX_FILES];
    struct buf texts[MAX_FILES];
    struct config_file files[MAX_FILES];
    size_t count;
};

static void files_done(struct files *files)
{
    for (size_t i = 0; i < MAX_FILES; i++) {
        free(files->paths[i]);
        buf_done(&files->texts[i]);
    }
}

/* Takes over `path`. */
static int files_add(struct files *files, char *path, bool required, struct err *err)
{
    size_t i = files->count;
    files->paths[i] = path;
    files->texts[i] = BUF_INIT(CONFIG_FILE_MAX + 1);
    int r = read_file(path, CONFIG_FILE_MAX, &files->texts[i], err);
    if ((r == -ENOENT || r == -ENOTDIR) && !required) {
        free(steal_ptr(&files->paths[i]));
        return 0;
    }
    if (r < 0)
        return r;
    files->files[i] = (struct config_file){ path, buf_str(&files->texts[i]), files->texts[i].len };
    files->count++;
    return 0;
}

static int files_gather(struct files *files, const char *file, struct err *err)
{
    if (!file)
        file = getenv("BELLJAR_CONFIG");
    if (file)
        return files_add(files, xstrdup(file), /* required= */ true, err);
    int r = files_add(files, xstrdup(system_file), /* required= */ false, err);
    char *user = r < 0 ? NULL : user_file();
    return user ? files_add(files, user, /* required= */ false, err) : r;
}

static int load_token(struct config *config, struct err *err)
{
    auto_buf text = BUF_INIT(TOKEN_FILE_MAX + 1);
    int r = read_file(config->token_file, TOKEN_FILE_MAX, &text, err);
    if (r < 0) {
        auto_free char *from = config_origin_of(config, "token_file");
        return err_wrap(err, "%s: token_file: must be a file that can be read", from);
    }
    r = config_use_token_file(config, buf_str(&text), text.len, err);
    explicit_bzero(text.data, text.cap);
    return r;
}

/*** The file of python-docker-mcp ***/

static char *foreign_file(bool *ret_required)
{
    const char *named = getenv("PYTHON_DOCKER_MCP_CONFIG"), *home = getenv("HOME");
    *ret_required = named && *named;
    if (*ret_required)
        return xstrdup(named);
    return home && home[0] == '/' ? xasprintf("%s/.python-docker-mcp/config.yaml", home) : NULL;
}

/* Loads once more with that file, if the profile that replaces the program was chosen. */
static int load_foreign(struct config_sources *sources, struct config *config, struct err *err)
{
    bool required;
    auto_free char *path = foreign_file(&required);
    auto_buf text = BUF_INIT(CONFIG_FILE_MAX + 1);
    if (sources->endpoint || !str_eq(config->profile, "python-docker-mcp") || !path)
        return 0;
    int r = read_file(path, CONFIG_FILE_MAX, &text, err);
    if ((r == -ENOENT || r == -ENOTDIR) && !required)
        return 0;
    if (r < 0)
        return r;
    const struct config_file file = { path, buf_str(&text), text.len };
    sources->foreign = &file;
    config_done(config);
    r = config_load(sources, config, err);
    sources->foreign = NULL;
    return r;
}

int config_load_host(const char *file, const struct config_sources *sources, struct config *ret,
                     struct err *err)
{
    __attribute__((cleanup(files_done))) struct files files = { 0 };
    int r = files_gather(&files, file, err);
    if (r < 0)
        return r;
    struct config_sources all = *sources;
    all.files = files.files;
    all.n_files = files.count;
    all.environment = environ;
    auto_config config = { 0 };
    r = config_load(&all, &config, err);
    if (r == 0)
        r = load_foreign(&all, &config, err);
    if (r == 0 && *config.token_file)
        r = load_token(&config, err);
    if (r < 0)
        return r;
    *ret = config;
    config = (struct config){ 0 };
    return 0;
}
