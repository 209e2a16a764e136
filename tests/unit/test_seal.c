#include "check.h"

#include "mcp/seal.h"

#include <errno.h>
#include <stdlib.h>

static const unsigned char key[SEAL_KEY_SIZE] = "0123456789abcdef0123456789abcde";
static const unsigned char other_key[SEAL_KEY_SIZE] = "0123456789abcdef0123456789abcdf";

static void test_what_was_sealed_comes_back(void **state)
{
    (void)state;
    static const char *const states[] = {
        "{\"step\":1,\"name\":\"\xc3\xa4\",\"big\":9007199254740993,\"real\":0.1}",
        "{}",
        "null",
        "[]",
        "\"text\"",
        "0",
    };
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        auto_json *json = json_literal(states[i]);
        auto_free char *text = seal_make(key, json, "binding", 1000);
        auto_json *opened = NULL;
        CHECK_INT(states[i],
                  strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                               "0123456789-_"),
                  strlen(text));
        CHECK_INT(states[i], seal_open(key, text, "binding", 999, &opened), 0);
        CHECK(states[i], json_equal(json, opened));
    }
}

static void test_a_seal_ends_with_its_time(void **state)
{
    (void)state;
    auto_json *json = json_object();
    auto_free char *text = seal_make(key, json, "", 1000);
    json_t *opened = NULL;
    assert_int_equal(seal_open(key, text, "", 1000, &opened), -ETIME);
    assert_int_equal(seal_open(key, text, "", UINT64_MAX, &opened), -ETIME);
    assert_null(opened);
}

static void test_a_seal_holds_for_one_key_and_one_binding(void **state)
{
    (void)state;
    auto_json *json = json_object();
    auto_free char *text = seal_make(key, json, "owner/tools/call", 1000);
    json_t *opened = NULL;
    assert_int_equal(seal_open(other_key, text, "owner/tools/call", 0, &opened), -EBADMSG);
    assert_int_equal(seal_open(key, text, "owner/tools/cal", 0, &opened), -EBADMSG);
    assert_int_equal(seal_open(key, text, "other/tools/call", 0, &opened), -EBADMSG);
    assert_int_equal(seal_open(key, text, "", 0, &opened), -EBADMSG);
    assert_null(opened);
}

static void test_every_change_is_noticed(void **state)
{
    (void)state;
    auto_json *json = json_literal("{\"paid\":false}");
    auto_free char *text = seal_make(key, json, "b", 1000);
    json_t *opened = NULL;
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        char kept = text[i];
        text[i] = kept == 'A' ? 'B' : 'A';
        CHECK_INT("changed", seal_open(key, text, "b", 0, &opened), -EBADMSG);
        text[i] = kept;
    }
    for (size_t i = 0; i < len; i++) {
        auto_free char *shorter = xstrndup(text, i);
        CHECK_INT("cut", seal_open(key, shorter, "b", 0, &opened), -EBADMSG);
    }
    static const char *const tails[] = { "-TAMPERED", "A", "=", "==", " ", "\n" };
    for (size_t i = 0; i < ARRAY_SIZE(tails); i++) {
        auto_free char *longer = xasprintf("%s%s", text, tails[i]);
        CHECK_INT(tails[i], seal_open(key, longer, "b", 0, &opened), -EBADMSG);
    }
    assert_null(opened);
}

static void test_a_changed_expiry_is_a_change(void **state)
{
    (void)state;
    /* Same state, other expiry: no part of one may be used with the other. */
    auto_json *json = json_object();
    auto_free char *early = seal_make(key, json, "b", 1000);
    auto_free char *late = seal_make(key, json, "b", 2000);
    assert_int_equal(strlen(early), strlen(late));
    auto_free char *mixed = xstrdup(late);
    memcpy(mixed, early, 40); /* 30 bytes of the HMAC */
    json_t *opened = NULL;
    assert_int_equal(seal_open(key, mixed, "b", 0, &opened), -EBADMSG);
}

static void test_foreign_text_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = { "", "x", "not ours", "====", "{}", "\xff\xfe" };
    json_t *opened = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        CHECK_INT(texts[i], seal_open(key, texts[i], "b", 0, &opened), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_sealed_comes_back),
        cmocka_unit_test(test_a_seal_ends_with_its_time),
        cmocka_unit_test(test_a_seal_holds_for_one_key_and_one_binding),
        cmocka_unit_test(test_every_change_is_noticed),
        cmocka_unit_test(test_a_changed_expiry_is_a_change),
        cmocka_unit_test(test_foreign_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
