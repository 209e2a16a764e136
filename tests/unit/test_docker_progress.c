#include "check.h"

#include "engine/docker/progress.h"

#include "base/base.h"

#include <errno.h>
#include <string.h>

#define ID "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void on_text(const char *text, size_t len, void *data)
{
    (void)buf_add(data, text, len);
}

/* Fed in pieces of `piece` bytes; what was told is in `told`. */
static int read_all(struct progress *progress, struct buf *told, const char *said, size_t piece,
                    struct err *err)
{
    progress_init(progress, on_text, told);
    size_t len = strlen(said);
    int r = 0;
    for (size_t at = 0; r == 0 && at < len; at += piece)
        r = progress_feed(progress, said + at, len - at < piece ? len - at : piece, err);
    return r < 0 ? r : progress_end(progress, err);
}

static void test_messages_become_lines(void **state)
{
    (void)state;
    static const struct {
        const char *name, *said, *told, *image, *error;
        int code;
    } cases[] = {
        { "nothing", "", "", "", NULL, 0 },
        { "a build's text",
          "{\"stream\":\"Step 1/2 : FROM base\\n\"}\r\n{\"stream\":\" ---> 012\\n\"}\r\n",
          "Step 1/2 : FROM base\n ---> 012\n", "", NULL, 0 },
        { "the image", "{\"aux\":{\"ID\":\"" ID "\"}}\r\n", "", ID, NULL, 0 },
        { "an import's image", "{\"status\":\"" ID "\"}\n", ID "\n", ID, NULL, 0 },
        { "no image: too short", "{\"aux\":{\"ID\":\"sha256:01\"}}\n", "", "", NULL, 0 },
        { "no image: not hexadecimal",
          "{\"aux\":{\"ID\":\"sha256:"
          "zz23456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}}\n",
          "", "", NULL, 0 },
        { "a layer", "{\"status\":\"Pull complete\",\"id\":\"ab12\",\"progressDetail\":{}}\n",
          "ab12: Pull complete\n", "", NULL, 0 },
        { "bytes of a layer",
          "{\"status\":\"Downloading\",\"id\":\"ab\",\"progressDetail\":{\"current\":1}}\n", "", "",
          NULL, 0 },
        { "an error",
          "{\"stream\":\"x\\n\"}\n{\"errorDetail\":{\"code\":1},\"error\":\"no such "
          "image\\nmore\"}\n",
          "x\n", "", "no such image", -EIO },
        { "the first error counts", "{\"error\":\"one\"}\n{\"error\":\"two\"}\n", "", "", "one",
          -EIO },
        { "an error without words", "{\"error\":\"\"}\n", "", "",
          "the engine reports an error without words", -EIO },
        { "an error in the last line, unended", "{\"error\":\"cut\"}", "", "", "cut", -EIO },
        { "what a terminal would obey", "{\"stream\":\"\\u001b[2Ja\\tb\\r\\n\"}\n",
          "\\u001b[2Ja\tb\n", "", NULL, 0 },
        { "not JSON", "busy\n", "", "", "the engine's report of progress is not JSON", -EBADMSG },
        { "no object", "[1]\n", "", "", "the engine's report of progress is not JSON", -EBADMSG },
        { "half a message", "{\"stream\":\"x", "", "",
          "the engine's report of progress is not JSON", -EBADMSG },
        { "other types", "{\"stream\":1,\"status\":[],\"error\":{},\"aux\":\"" ID "\"}\n", "", "",
          NULL, 0 },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        for (size_t piece = 1; piece < 200; piece += 13) {
            auto_buf told = BUF_INIT(BUF_NO_CEILING);
            struct progress progress;
            struct err err = { 0 };
            CHECK_INT(cases[i].name, read_all(&progress, &told, cases[i].said, piece, &err),
                      cases[i].code);
            CHECK_STR(cases[i].name, buf_str(&told), cases[i].told);
            CHECK_STR(cases[i].name, progress.image, cases[i].image);
            CHECK_STR(cases[i].name, err.msg, cases[i].error ? cases[i].error : "");
            progress_done(&progress);
        }
    }
}

static void test_a_message_has_a_ceiling(void **state)
{
    (void)state;
    auto_free char *most = xmalloc(PROGRESS_LINE_MAX + 1);
    struct progress progress;
    struct err err = { 0 };
    memset(most, ' ', PROGRESS_LINE_MAX + 1);

    progress_init(&progress, NULL, NULL);
    CHECK_INT("at the ceiling", progress_feed(&progress, most, PROGRESS_LINE_MAX, &err), 0);
    CHECK_INT("which is nothing", progress_feed(&progress, "\n", 1, &err), 0);
    CHECK_INT("and again", progress_feed(&progress, most, PROGRESS_LINE_MAX, &err), 0);
    CHECK_INT("beyond", progress_feed(&progress, " ", 1, &err), -EMSGSIZE);
    progress_done(&progress);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_become_lines),
        cmocka_unit_test(test_a_message_has_a_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
