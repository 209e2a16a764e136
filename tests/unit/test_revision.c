#include "check.h"

#include "mcp/revision.h"

#include <stdlib.h>

typedef json_t *fit_fn(enum revision revision, const json_t *json);

/* Fits the JSON text `in` and compares; the original must stay as it was. */
static void check_fit(fit_fn *fit, enum revision revision, const char *in, const char *want)
{
    auto_json *json = json_literal(in);
    auto_json *before = json_deep_copy(json);
    auto_json *fitted = fit(revision, json);
    auto_free char *text = json_text(fitted);
    CHECK_STR(revision_name(revision), text, want);
    CHECK(revision_name(revision), json_equal(json, before));
}

static void test_features_come_with_their_revision(void **state)
{
    (void)state;
    static const struct {
        enum revision_feature feature;
        const char *name;
        bool has[REVISION_COUNT];
    } cases[] = {
        { HAS_BATCHES, "batches", { 0, 1, 0, 0, 0 } },
        { HAS_TOOL_ANNOTATIONS, "annotations", { 0, 1, 1, 1, 1 } },
        { HAS_AUDIO, "audio", { 0, 1, 1, 1, 1 } },
        { HAS_PROGRESS_MESSAGE, "progress message", { 0, 1, 1, 1, 1 } },
        { HAS_COMPLETIONS_CAPABILITY, "completions", { 0, 1, 1, 1, 1 } },
        { HAS_TITLE, "title", { 0, 0, 1, 1, 1 } },
        { HAS_STRUCTURED, "structured", { 0, 0, 1, 1, 1 } },
        { HAS_RESOURCE_LINK, "resource link", { 0, 0, 1, 1, 1 } },
        { HAS_ELICITATION, "elicitation", { 0, 0, 1, 1, 1 } },
        { HAS_ICONS, "icons", { 0, 0, 0, 1, 1 } },
        { HAS_PRIMING, "priming", { 0, 0, 0, 1, 0 } },
        { HAS_TOOL_INPUT_ERRORS, "tool input errors", { 0, 0, 0, 1, 1 } },
        { IS_STATELESS, "stateless", { 0, 0, 0, 0, 1 } },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (enum revision r = 0; r < REVISION_COUNT; r++)
            CHECK_INT(cases[i].name, revision_has(r, cases[i].feature), cases[i].has[r]);
}

static void test_names_are_exact(void **state)
{
    (void)state;
    enum revision revision;
    for (enum revision r = 0; r < REVISION_COUNT; r++) {
        assert_true(revision_parse(revision_name(r), &revision));
        assert_int_equal(revision, r);
    }
    static const char *const others[] = { "", "2025-11-2", "2025-11-251", " 2025-11-25", "DRAFT" };
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        CHECK(others[i], !revision_parse(others[i], &revision));
    assert_false(revision_parse(NULL, &revision));
}

static void test_initialize_never_answers_with_a_stateless_revision(void **state)
{
    (void)state;
    static const struct {
        const char *requested, *want;
    } cases[] = {
        { "2024-11-05", "2024-11-05" }, { "2025-03-26", "2025-03-26" },
        { "2025-06-18", "2025-06-18" }, { "2025-11-25", "2025-11-25" },
        { "2026-07-28", "2025-11-25" }, { "2024-10-07", "2025-11-25" },
        { "1.0", "2025-11-25" },        { "", "2025-11-25" },
        { NULL, "2025-11-25" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        CHECK_STR(cases[i].requested ? cases[i].requested : "none",
                  revision_name(revision_negotiate(cases[i].requested)), cases[i].want);
}

static void test_a_tool_loses_what_the_revision_lacks(void **state)
{
    (void)state;
    static const char tool[] =
        "{\"name\":\"t\",\"title\":\"T\",\"description\":\"d\",\"inputSchema\":{},"
        "\"outputSchema\":{},\"annotations\":{\"title\":\"T\"},\"icons\":[],"
        "\"execution\":{\"taskSupport\":\"optional\"},\"_meta\":{}}";
    static const char *const want[REVISION_COUNT] = {
        "{\"name\":\"t\",\"description\":\"d\",\"inputSchema\":{}}",
        "{\"name\":\"t\",\"description\":\"d\",\"inputSchema\":{},\"annotations\":{\"title\":\"T\"}"
        "}",
        "{\"name\":\"t\",\"title\":\"T\",\"description\":\"d\",\"inputSchema\":{},"
        "\"outputSchema\":{},\"annotations\":{\"title\":\"T\"},\"_meta\":{}}",
        "{\"name\":\"t\",\"title\":\"T\",\"description\":\"d\",\"inputSchema\":{},"
        "\"outputSchema\":{},\"annotations\":{\"title\":\"T\"},\"icons\":[],\"_meta\":{}}",
        "{\"name\":\"t\",\"title\":\"T\",\"description\":\"d\",\"inputSchema\":{},"
        "\"outputSchema\":{},\"annotations\":{\"title\":\"T\"},\"icons\":[],\"_meta\":{}}",
    };
    for (enum revision r = 0; r < REVISION_COUNT; r++)
        check_fit(revision_fit_tool, r, tool, want[r]);
}

static void test_a_resource_loses_what_the_revision_lacks(void **state)
{
    (void)state;
    static const char resource[] =
        "{\"uri\":\"a:b\",\"name\":\"n\",\"title\":\"T\",\"description\":\"d\",\"mimeType\":\"m\","
        "\"size\":3,\"icons\":[],\"annotations\":{\"priority\":1,\"lastModified\":\"x\"},"
        "\"_meta\":{}}";
    check_fit(revision_fit_resource, REVISION_2025_03_26, resource,
              "{\"uri\":\"a:b\",\"name\":\"n\",\"description\":\"d\",\"mimeType\":\"m\",\"size\":3,"
              "\"annotations\":{\"priority\":1}}");
    check_fit(revision_fit_resource, REVISION_2025_06_18, resource,
              "{\"uri\":\"a:b\",\"name\":\"n\",\"title\":\"T\",\"description\":\"d\","
              "\"mimeType\":\"m\",\"size\":3,"
              "\"annotations\":{\"priority\":1,\"lastModified\":\"x\"},\"_meta\":{}}");
    check_fit(revision_fit_resource, REVISION_2026_07_28, resource, resource);
}

static void test_a_prompt_and_its_arguments_lose_their_titles(void **state)
{
    (void)state;
    static const char prompt[] =
        "{\"name\":\"p\",\"title\":\"P\",\"arguments\":[{\"name\":\"a\",\"title\":\"A\","
        "\"required\":true},{\"name\":\"b\"}],\"icons\":[]}";
    check_fit(
        revision_fit_prompt, REVISION_2024_11_05, prompt,
        "{\"name\":\"p\",\"arguments\":[{\"name\":\"a\",\"required\":true},{\"name\":\"b\"}]}");
    check_fit(revision_fit_prompt, REVISION_2025_06_18, prompt,
              "{\"name\":\"p\",\"title\":\"P\",\"arguments\":[{\"name\":\"a\",\"title\":\"A\","
              "\"required\":true},{\"name\":\"b\"}]}");
    check_fit(revision_fit_prompt, REVISION_2025_11_25, prompt, prompt);
    check_fit(revision_fit_prompt, REVISION_2024_11_05, "{\"name\":\"q\"}", "{\"name\":\"q\"}");
}

static void test_an_implementation_loses_what_the_revision_lacks(void **state)
{
    (void)state;
    static const char info[] = "{\"name\":\"n\",\"version\":\"1\",\"title\":\"T\","
                               "\"description\":\"d\",\"websiteUrl\":\"https://x\",\"icons\":[]}";
    check_fit(revision_fit_implementation, REVISION_2025_03_26, info,
              "{\"name\":\"n\",\"version\":\"1\"}");
    check_fit(revision_fit_implementation, REVISION_2025_06_18, info,
              "{\"name\":\"n\",\"version\":\"1\",\"title\":\"T\"}");
    check_fit(revision_fit_implementation, REVISION_2025_11_25, info, info);
}

static void test_unknown_content_becomes_text_that_names_it(void **state)
{
    (void)state;
    static const struct {
        enum revision before; /* the last revision that does not know it */
        const char *in, *want;
    } cases[] = {
        { REVISION_2024_11_05,
          "{\"type\":\"audio\",\"data\":\"AAECAw==\",\"mimeType\":\"audio/wav\"}",
          "{\"type\":\"text\",\"text\":\"[Audio, audio/wav, 4 bytes]\"}" },
        { REVISION_2025_03_26,
          "{\"type\":\"resource_link\",\"uri\":\"a:b\",\"name\":\"plot.png\",\"title\":\"P\","
          "\"mimeType\":\"image/png\",\"size\":99,\"description\":\"A plot\"}",
          "{\"type\":\"text\",\"text\":\"[Resource a:b, plot.png, image/png, 99 bytes, A "
          "plot]\"}" },
        { REVISION_2025_03_26,
          "{\"type\":\"resource_link\",\"uri\":\"a:b\",\"name\":\"n\",\"annotations\":"
          "{\"audience\":[\"user\"],\"lastModified\":\"x\"},\"_meta\":{}}",
          "{\"type\":\"text\",\"text\":\"[Resource a:b, n]\",\"annotations\":"
          "{\"audience\":[\"user\"]}}" },
        { REVISION_2026_07_28, "{\"type\":\"smell\",\"data\":\"\"}",
          "{\"type\":\"text\",\"text\":\"[Content of type smell]\"}" },
        { REVISION_2026_07_28, "{}", "{\"type\":\"text\",\"text\":\"[Content of type unknown]\"}" },
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        check_fit(revision_fit_content, cases[i].before, cases[i].in, cases[i].want);
        check_fit(revision_fit_content, REVISION_2024_11_05, cases[i].in, cases[i].want);
        if (cases[i].before < REVISION_2026_07_28)
            check_fit(revision_fit_content, REVISION_2026_07_28, cases[i].in, cases[i].in);
    }
}

static void test_known_content_loses_only_newer_members(void **state)
{
    (void)state;
    static const char text[] = "{\"type\":\"text\",\"text\":\"t\",\"annotations\":"
                               "{\"priority\":0.5,\"lastModified\":\"x\"},\"_meta\":{\"k\":1}}";
    check_fit(revision_fit_content, REVISION_2025_03_26, text,
              "{\"type\":\"text\",\"text\":\"t\",\"annotations\":{\"priority\":0.5}}");
    check_fit(revision_fit_content, REVISION_2025_06_18, text, text);

    static const char resource[] =
        "{\"type\":\"resource\",\"resource\":{\"uri\":\"a:b\",\"text\":\"t\",\"_meta\":{}}}";
    check_fit(revision_fit_content, REVISION_2024_11_05, resource,
              "{\"type\":\"resource\",\"resource\":{\"uri\":\"a:b\",\"text\":\"t\"}}");
    check_fit(revision_fit_content, REVISION_2025_06_18, resource, resource);

    static const char link[] = "{\"type\":\"resource_link\",\"uri\":\"a:b\",\"name\":\"n\","
                               "\"title\":\"T\",\"icons\":[]}";
    check_fit(revision_fit_content, REVISION_2025_06_18, link,
              "{\"type\":\"resource_link\",\"uri\":\"a:b\",\"name\":\"n\",\"title\":\"T\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features_come_with_their_revision),
        cmocka_unit_test(test_names_are_exact),
        cmocka_unit_test(test_initialize_never_answers_with_a_stateless_revision),
        cmocka_unit_test(test_a_tool_loses_what_the_revision_lacks),
        cmocka_unit_test(test_a_resource_loses_what_the_revision_lacks),
        cmocka_unit_test(test_a_prompt_and_its_arguments_lose_their_titles),
        cmocka_unit_test(test_an_implementation_loses_what_the_revision_lacks),
        cmocka_unit_test(test_unknown_content_becomes_text_that_names_it),
        cmocka_unit_test(test_known_content_loses_only_newer_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
