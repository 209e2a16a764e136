#include "check.h"

#include "tools/mime.h"
#include "tools/session_files.h"

static void test_names_tell_the_type(void **state)
{
    (void)state;
    static const struct {
        const char *path, *want;
    } cases[] = {
        { "a.png", "image/png" },
        { "a/b.PNG", "image/png" },
        { "x.tar.gz", "application/gzip" },
        { "a.csv", "text/csv" },
        { "a.h5", "application/x-hdf5" },
        { "png", NULL },
        { "dir.png/file", NULL },
        { ".png", "image/png" },
        { "a.", NULL },
        { "", NULL },
        { "a.unknown", NULL },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *got = mime_of_name(cases[i].path);
        if (cases[i].want)
            CHECK_STR(cases[i].path, got, cases[i].want);
        else
            CHECK(cases[i].path, got == NULL);
    }
}

static void test_contents_tell_it_where_the_name_does_not(void **state)
{
    (void)state;
    static const struct {
        const char *path, *bytes;
        size_t len;
        const char *want;
    } cases[] = {
        { "plot", "\x89PNG\r\n\x1a\n....", 12, "image/png" },
        { "plot", "\x89PNG", 4, "application/octet-stream" },
        { "plot.txt", "\x89PNG\r\n\x1a\n", 8, "text/plain" },
        { "doc", "%PDF-1.7", 8, "application/pdf" },
        { "words", "caf\xc3\xa9", 5, "text/plain" },
        { "words", "caf\xe9", 4, "application/octet-stream" },
        { "nul", "a\0b", 3, "application/octet-stream" },
        { "empty", "", 0, "text/plain" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        CHECK_STR(cases[i].path, mime_of(cases[i].path, cases[i].bytes, cases[i].len),
                  cases[i].want);
}

static void test_contents_alone(void **state)
{
    (void)state;
    CHECK_STR("webp", mime_of_bytes("RIFF\0\0\0\0WEBPVP8 ", 16), "image/webp");
    CHECK("another of its family", !mime_of_bytes("RIFF\0\0\0\0WAVEfmt ", 16));
    CHECK("too short", !mime_of_bytes("RIFF\0\0\0\0WEB", 11));
    CHECK_STR("gif", mime_of_bytes("GIF89a", 6), "image/gif");
    CHECK("text", !mime_of_bytes("notpng", 6));
}

static void test_what_reads_as_text(void **state)
{
    (void)state;
    CHECK("text", mime_is_text("text/csv"));
    CHECK("json", mime_is_text("application/json"));
    CHECK("xml", mime_is_text("application/xml"));
    CHECK("svg", mime_is_text("image/svg+xml"));
    CHECK("png", !mime_is_text("image/png"));
    CHECK("any", !mime_is_text("application/octet-stream"));
}

static void test_uris_survive_the_way_there_and_back(void **state)
{
    (void)state;
    static const struct {
        const char *path, *uri;
    } cases[] = {
        { "a.txt", "kernel://id/a.txt" },
        { "d/e f", "kernel://id/d/e%20f" },
        { "100%#?.txt", "kernel://id/100%25%23%3F.txt" },
        { "\xc3\xbc", "kernel://id/%C3%BC" },
        { "a\nb", "kernel://id/a%0Ab" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_free char *uri = session_file_uri("id", cases[i].path);
        auto_free char *id = NULL, *path = NULL;
        CHECK_STR(cases[i].path, uri, cases[i].uri);
        CHECK(uri, session_file_uri_parse(uri, &id, &path));
        CHECK_STR(uri, id, "id");
        CHECK_STR(uri, path, cases[i].path);
    }
    char *id, *path;
    CHECK("another scheme", !session_file_uri_parse("file:///a", &id, &path));
    CHECK("no path", !session_file_uri_parse("kernel://id/", &id, &path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_tell_the_type),
        cmocka_unit_test(test_contents_tell_it_where_the_name_does_not),
        cmocka_unit_test(test_contents_alone),
        cmocka_unit_test(test_what_reads_as_text),
        cmocka_unit_test(test_uris_survive_the_way_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
