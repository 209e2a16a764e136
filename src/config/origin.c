#include "config/origin.h"
#include "base/base.h"

static const struct {
    const char *name;
    const char *prefix; /* before `where` */
} sources[] = {
    [FROM_DEFAULT] = { "default", "default" },
    [FROM_PROFILE] = { "profile", "default of the profile " },
    [FROM_PROGRAM] = { "program", "program name " },
    [FROM_FOREIGN] = { "file", "" },
    [FROM_FILE] = { "file", "" },
    [FROM_ALIAS] = { "environment", "environment variable " },
    [FROM_VARIABLE] = { "environment", "environment variable " },
    [FROM_FLAG] = { "flag", "flag " },
};

char *origin_text(const struct config_origin *origin)
{
    return xasprintf("%s%s", sources[origin->source].prefix, origin->where ? origin->where : "");
}

const char *origin_name(const struct config_origin *origin)
{
    return sources[origin->source].name;
}
