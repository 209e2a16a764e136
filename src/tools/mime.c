#include "tools/mime.h"

#include "base/text.h"

#include <string.h>
#include <strings.h>

/* In the order of the alphabet, for people. */
static const struct {
    const char *suffix, *type;
} by_suffix[] = {
    { "7z", "application/x-7z-compressed" },
    { "aac", "audio/aac" },
    { "avi", "video/x-msvideo" },
    { "bash", "application/x-sh" },
    { "bmp", "image/bmp" },
    { "bz2", "application/x-bzip2" },
    { "c", "text/x-c" },
    { "cfg", "text/plain" },
    { "conf", "text/plain" },
    { "cpp", "text/x-c++" },
    { "css", "text/css" },
    { "csv", "text/csv" },
    { "db", "application/vnd.sqlite3" },
    { "doc", "application/msword" },
    { "docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document" },
    { "feather", "application/vnd.apache.arrow.file" },
    { "flac", "audio/flac" },
    { "geojson", "application/geo+json" },
    { "gif", "image/gif" },
    { "go", "text/x-go" },
    { "gz", "application/gzip" },
    { "h", "text/x-c" },
    { "h5", "application/x-hdf5" },
    { "hdf5", "application/x-hdf5" },
    { "htm", "text/html" },
    { "html", "text/html" },
    { "ico", "image/vnd.microsoft.icon" },
    { "ini", "text/plain" },
    { "ipynb", "application/x-ipynb+json" },
    { "java", "text/x-java" },
    { "jpeg", "image/jpeg" },
    { "jpg", "image/jpeg" },
    { "js", "text/javascript" },
    { "json", "application/json" },
    { "jsonl", "application/jsonl" },
    { "log", "text/plain" },
    { "m4a", "audio/mp4" },
    { "md", "text/markdown" },
    { "mjs", "text/javascript" },
    { "mp3", "audio/mpeg" },
    { "mp4", "video/mp4" },
    { "ndjson", "application/jsonl" },
    { "npy", "application/octet-stream" },
    { "npz", "application/octet-stream" },
    { "ogg", "audio/ogg" },
    { "parquet", "application/vnd.apache.parquet" },
    { "pdf", "application/pdf" },
    { "pickle", "application/octet-stream" },
    { "pkl", "application/octet-stream" },
    { "png", "image/png" },
    { "pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation" },
    { "ps", "application/postscript" },
    { "py", "text/x-python" },
    { "r", "text/x-r" },
    { "rb", "text/x-ruby" },
    { "rs", "text/x-rust" },
    { "rst", "text/x-rst" },
    { "rtf", "application/rtf" },
    { "sh", "application/x-sh" },
    { "sql", "application/sql" },
    { "sqlite", "application/vnd.sqlite3" },
    { "svg", "image/svg+xml" },
    { "tar", "application/x-tar" },
    { "tex", "text/x-tex" },
    { "tgz", "application/gzip" },
    { "tif", "image/tiff" },
    { "tiff", "image/tiff" },
    { "toml", "application/toml" },
    { "ts", "text/x-typescript" },
    { "tsv", "text/tab-separated-values" },
    { "txt", "text/plain" },
    { "wasm", "application/wasm" },
    { "wav", "audio/wav" },
    { "webm", "video/webm" },
    { "webp", "image/webp" },
    { "xls", "application/vnd.ms-excel" },
    { "xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" },
    { "xml", "application/xml" },
    { "xz", "application/x-xz" },
    { "yaml", "application/yaml" },
    { "yml", "application/yaml" },
    { "zip", "application/zip" },
    { "zst", "application/zstd" },
};

/* First bytes; the longest that a type needs. */
static const struct {
    const char *bytes;
    size_t len;
    const char *type;
} by_magic[] = {
    { "\x89PNG\r\n\x1a\n", 8, "image/png" },
    { "\xff\xd8\xff", 3, "image/jpeg" },
    { "GIF8", 4, "image/gif" },
    { "%PDF-", 5, "application/pdf" },
    { "PK\x03\x04", 4, "application/zip" },
    { "\x1f\x8b", 2, "application/gzip" },
    { "SQLite format 3", 16, "application/vnd.sqlite3" },
    { "PAR1", 4, "application/vnd.apache.parquet" },
};

const char *mime_of_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < ARRAY_SIZE(by_suffix); i++) {
        if (strcasecmp(by_suffix[i].suffix, dot + 1) == 0)
            return by_suffix[i].type;
    }
    return NULL;
}

static bool is_text(const char *bytes, size_t len)
{
    return !memchr(bytes, '\0', len) && utf8_valid(bytes, len);
}

const char *mime_of_bytes(const char *bytes, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(by_magic); i++) {
        if (len >= by_magic[i].len && memcmp(bytes, by_magic[i].bytes, by_magic[i].len) == 0)
            return by_magic[i].type;
    }
    /* A family of formats: its size comes before its name. */
    bool webp = len >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0;
    return webp ? "image/webp" : NULL;
}

const char *mime_of(const char *path, const char *bytes, size_t len)
{
    const char *type = mime_of_name(path);
    if (!type)
        type = mime_of_bytes(bytes, len);
    if (type)
        return type;
    return len == 0 || is_text(bytes, len) ? "text/plain" : "application/octet-stream";
}

bool mime_is_text(const char *type)
{
    static const char *const others[] = {
        "application/json",         "application/xml",      "application/yaml", "application/toml",
        "application/jsonl",        "application/sql",      "application/x-sh", "image/svg+xml",
        "application/x-ipynb+json", "application/geo+json",
    };
    if (str_has_prefix(type, "text/"))
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        if (str_eq(others[i], type))
            return true;
    }
    return false;
}
