#include "check.h"

#include "base/loop.h"
#include "engine/broker.h"

#include <errno.h>
#include <stdlib.h>

enum { SANDBOXES = 16 };

/* An engine that makes nothing: the test says when a making is done. */
struct factory {
    uv_loop_t loop;
    struct engine engine;
    struct broker *broker;
    int refuses;   /* what make() says; 0: it makes */
    size_t places; /* after which it refuses, too; 0: any number */
    size_t begun, discarded;
    struct sandbox_plan last; /* that was begun */
    struct sandbox made[SANDBOXES];
    size_t n_made;
};

struct caller {
    struct engine_pending *pending;
    struct sandbox *got;
    struct err why;
    int told;
};

static const struct sandbox_plan small = { .limits = { .memory_bytes = 1 } };
static const struct sandbox_plan large = { .limits = { .memory_bytes = 2 } };

static int make(void *data, const struct sandbox_plan *plan, struct err *err)
{
    struct factory *factory = data;
    bool full = factory->places && factory->begun - factory->discarded >= factory->places;
    if (factory->refuses || full)
        return err_set(err, full ? EAGAIN : factory->refuses, "no place");
    factory->begun++;
    factory->last = *plan;
    return 0;
}

static void discard(struct sandbox *sandbox)
{
    container_of(sandbox->engine, struct factory, engine)->discarded++;
}

static struct factory *factory_new(const struct broker_options *options)
{
    struct factory *factory = xcalloc(1, sizeof(*factory));
    assert_int_equal(uv_loop_init(&factory->loop), 0);
    factory->broker = broker_new(&factory->loop, &factory->engine, options,
                                 &(struct broker_maker){ factory, make, discard });
    return factory;
}

static void factory_free(struct factory *factory)
{
    broker_free(factory->broker);
    loop_finish(&factory->loop);
    free(factory);
}

static struct sandbox *finish(struct factory *factory, const struct sandbox_plan *plan)
{
    assert_true(factory->n_made < SANDBOXES);
    struct sandbox *sandbox = &factory->made[factory->n_made++];
    sandbox->engine = &factory->engine;
    broker_made(factory->broker, plan, sandbox);
    return sandbox;
}

static void on_started(struct sandbox *sandbox, const struct err *err, void *data)
{
    struct caller *caller = data;
    caller->told++;
    caller->got = sandbox;
    assert_true((sandbox == NULL) == (err != NULL));
    if (err)
        caller->why = *err;
}

static void start(struct factory *factory, struct caller *caller, const struct sandbox_plan *plan)
{
    caller->pending = broker_start(factory->broker, plan, on_started, caller);
    assert_int_equal(caller->told, 0); /* not from inside the call */
}

static void turn(struct factory *factory)
{
    for (int i = 0; i < 3; i++)
        (void)uv_run(&factory->loop, UV_RUN_NOWAIT);
}

/* Until the pool's clocks have had their time. */
static void turn_until(struct factory *factory, const size_t *count, size_t value)
{
    for (uint64_t begin = clock_ms(); *count < value && clock_ms() - begin < 5000;)
        (void)uv_run(&factory->loop, UV_RUN_ONCE);
    assert_int_equal(*count, value);
}

static void test_a_sandbox_goes_to_the_first_who_waits_for_its_plan(void **state)
{
    (void)state;
    struct factory *factory = factory_new(&(struct broker_options){ .max_makings = 3 });
    struct caller one = { 0 }, two = { 0 }, other = { 0 };
    start(factory, &one, &small);
    start(factory, &two, &small);
    start(factory, &other, &large);
    assert_int_equal(factory->begun, 3);
    struct sandbox *first = finish(factory, &small);
    struct sandbox *second = finish(factory, &large);
    turn(factory);
    assert_ptr_equal(one.got, first);
    assert_int_equal(two.told, 0);
    assert_ptr_equal(other.got, second);
    struct sandbox *third = finish(factory, &small);
    turn(factory);
    assert_ptr_equal(two.got, third);
    assert_int_equal(factory->engine.stats.sandboxes_open, 3);
    factory_free(factory);
}

static void test_no_more_are_made_at_once_than_allowed(void **state)
{
    (void)state;
    struct factory *factory = factory_new(&(struct broker_options){ .max_makings = 1 });
    struct caller callers[3] = { 0 };
    for (size_t i = 0; i < 3; i++)
        start(factory, &callers[i], &small);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(factory->begun, i + 1);
        (void)finish(factory, &small);
    }
    turn(factory);
    assert_int_equal(factory->begun, 3);
    assert_non_null(callers[2].got);
    factory_free(factory);
}

static void test_who_gives_up_leaves_his_to_the_next(void **state)
{
    (void)state;
    struct factory *factory = factory_new(&(struct broker_options){ .max_makings = 4 });
    struct caller one = { 0 }, two = { 0 };
    start(factory, &one, &small);
    broker_cancel(factory->broker, one.pending);
    start(factory, &two, &small);
    assert_int_equal(factory->begun, 1); /* the making that was under way is his */
    struct sandbox *sandbox = finish(factory, &small);
    turn(factory);
    assert_ptr_equal(two.got, sandbox);
    assert_int_equal(one.told, 0);
    factory_free(factory);
}

static void test_one_that_was_cancelled_after_it_was_made_is_discarded(void **state)
{
    (void)state;
    struct factory *factory = factory_new(&(struct broker_options){ .max_makings = 1 });
    struct caller one = { 0 };
    start(factory, &one, &small);
    (void)finish(factory, &small);
    broker_cancel(factory->broker, one.pending);
    turn(factory);
    assert_int_equal(one.told, 0);
    assert_int_equal(factory->discarded, 1);
    assert_int_equal(factory->engine.stats.sandboxes_open, 0);
    factory_free(factory);
}

static const struct broker_options pool_of_two = {
    .pooled = true, .plan = { .limits = { .memory_bytes = 1 } }, .size = 2, .max_makings = 2
};

static void test_the_pool_is_filled_used_and_filled_again(void **state)
{
    (void)state;
    struct factory *factory = factory_new(&pool_of_two);
    turn_until(factory, &factory->begun, 2);
    struct sandbox *oldest = finish(factory, &small);
    (void)finish(factory, &small);
    assert_int_equal(factory->engine.stats.pool_ready, 2);
    struct caller one = { 0 }, other = { 0 };
    start(factory, &one, &small);
    turn(factory);
    assert_ptr_equal(one.got, oldest);
    assert_int_equal(factory->engine.stats.pool_hits, 1);
    start(factory, &other, &large); /* not what is made ahead */
    assert_int_equal(factory->engine.stats.pool_misses, 1);
    assert_int_equal(factory->last.limits.memory_bytes, 2);
    turn_until(factory, &factory->begun, 4);
    assert_int_equal(factory->last.limits.memory_bytes, 1);
    broker_free(factory->broker);
    factory->broker = NULL;
    assert_int_equal(factory->discarded, 1); /* the one that was left in the pool */
    factory_free(factory);
}

/*** A rush ***/

/* A full pool of these, all of them taken at once. */
static struct factory *factory_in_a_rush(size_t count, struct caller *callers)
{
    struct broker_options options = pool_of_two;
    options.size = count;
    options.max_makings = count;
    struct factory *factory = factory_new(&options);
    turn_until(factory, &factory->begun, count);
    for (size_t i = 0; i < count; i++)
        (void)finish(factory, &small);
    for (size_t i = 0; i < count; i++)
        start(factory, &callers[i], &small);
    turn(factory);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(callers[i].told, 1);
    return factory;
}

static void test_who_comes_at_once_is_served_before_successors_are_made(void **state)
{
    (void)state;
    enum { MANY = 8 };
    struct caller callers[MANY] = { 0 };
    uint64_t before = clock_ms();
    struct factory *factory = factory_in_a_rush(MANY, callers);
    assert_int_equal(factory->begun, MANY);
    turn_until(factory, &factory->begun, 2 * MANY);
    /* 5 ms, and 2 ms of a processor for each; one less for what the clock does not show. */
    assert_true(clock_ms() - before >= 4 + 2 * MANY / uv_available_parallelism());
    for (size_t i = 0; i < MANY; i++)
        assert_ptr_equal(callers[i].got, &factory->made[i]);
    factory_free(factory);
}

static void test_who_finds_none_does_not_wait_for_the_end_of_a_rush(void **state)
{
    (void)state;
    struct caller callers[4] = { 0 }, late = { 0 };
    struct factory *factory = factory_in_a_rush(4, callers);
    start(factory, &late, &small);
    assert_int_equal(factory->begun, 5);
    factory_free(factory);
}

static void test_those_at_rest_are_discarded_after_the_rush_and_before_others_are_made(void **state)
{
    (void)state;
    struct caller callers[8] = { 0 };
    struct factory *factory = factory_in_a_rush(8, callers);
    for (size_t i = 0; i < 8; i++)
        broker_retire(factory->broker, callers[i].got);
    assert_int_equal(factory->discarded, 0);
    while (factory->discarded < 8) {
        assert_true(factory->begun <= 8 + factory->discarded); /* each has its place until then */
        (void)uv_run(&factory->loop, UV_RUN_ONCE);
    }
    turn_until(factory, &factory->begun, 16);
    factory_free(factory);
}

static void test_without_a_rush_nobody_rests(void **state)
{
    (void)state;
    struct caller callers[2] = { 0 };
    struct factory *factory = factory_in_a_rush(2, callers);
    turn_until(factory, &factory->begun, 4); /* it is over */
    broker_retire(factory->broker, callers[0].got);
    assert_int_equal(factory->discarded, 1);
    factory_free(factory);
}

static void test_no_more_rest_than_have_been_taken_from_the_pool(void **state)
{
    (void)state;
    struct caller callers[2] = { 0 }, other = { 0 };
    struct factory *factory = factory_in_a_rush(2, callers);
    start(factory, &other, &large);
    (void)finish(factory, &large);
    turn(factory);
    broker_retire(factory->broker, callers[0].got);
    broker_retire(factory->broker, callers[1].got);
    assert_int_equal(factory->discarded, 0);
    broker_retire(factory->broker, other.got);
    assert_int_equal(factory->discarded, 1);
    factory_free(factory);
}

static void test_those_at_rest_make_room_when_there_is_none(void **state)
{
    (void)state;
    struct caller callers[2] = { 0 }, late = { 0 };
    struct factory *factory = factory_in_a_rush(2, callers);
    factory->places = 2;
    broker_retire(factory->broker, callers[0].got);
    start(factory, &late, &small);
    assert_int_equal(factory->discarded, 1);
    assert_int_equal(factory->begun, 3);
    assert_int_equal(late.told, 0);
    factory_free(factory);
}

static void test_one_that_dies_at_rest_is_let_go(void **state)
{
    (void)state;
    struct caller callers[2] = { 0 };
    struct factory *factory = factory_in_a_rush(2, callers);
    broker_retire(factory->broker, callers[0].got);
    assert_true(broker_lost(factory->broker, callers[0].got));
    assert_false(broker_lost(factory->broker, callers[0].got));
    turn_until(factory, &factory->begun, 4);
    assert_int_equal(factory->discarded, 0);
    factory_free(factory);
}

static void test_nobody_rests_beyond_the_end(void **state)
{
    (void)state;
    struct caller callers[2] = { 0 };
    struct factory *factory = factory_in_a_rush(2, callers);
    struct err err;
    err_set(&err, EPIPE, "gone");
    broker_retire(factory->broker, callers[0].got);
    broker_shut(factory->broker, &err);
    assert_int_equal(factory->discarded, 1);
    broker_retire(factory->broker, callers[1].got);
    broker_free(factory->broker);
    factory->broker = NULL;
    assert_int_equal(factory->discarded, 2);
    factory_free(factory);
}

static void test_what_grew_old_in_the_pool_is_made_anew(void **state)
{
    (void)state;
    struct broker_options options = pool_of_two;
    options.max_age_ms = 1;
    struct factory *factory = factory_new(&options);
    turn_until(factory, &factory->begun, 2);
    (void)finish(factory, &small);
    (void)finish(factory, &small);
    turn_until(factory, &factory->discarded, 2);
    turn_until(factory, &factory->begun, 4);
    factory_free(factory);
}

static void test_a_full_house_refuses_and_a_busy_one_waits(void **state)
{
    (void)state;
    struct factory *factory = factory_new(&(struct broker_options){ .max_makings = 1 });
    struct caller one = { 0 }, two = { 0 };
    factory->refuses = EAGAIN;
    start(factory, &one, &small);
    turn(factory);
    assert_int_equal(one.told, 1);
    assert_string_equal(one.why.msg, "no place");
    factory->refuses = EBUSY;
    start(factory, &two, &small);
    turn(factory);
    assert_int_equal(two.told, 0);
    factory->refuses = 0;
    broker_pump(factory->broker);
    assert_int_equal(factory->begun, 1);
    factory_free(factory);
}

static void test_a_failure_is_told_to_the_first_who_waits_and_the_pool_pauses(void **state)
{
    (void)state;
    struct factory *factory = factory_new(&pool_of_two);
    turn_until(factory, &factory->begun, 2);
    struct caller one = { 0 };
    struct err err;
    err_set(&err, EIO, "it burnt");
    start(factory, &one, &small);
    broker_failed(factory->broker, &small, &err);
    broker_failed(factory->broker, &small, &err); /* nobody's: logged */
    turn(factory);
    assert_int_equal(one.told, 1);
    assert_string_equal(one.why.msg, "it burnt");
    assert_int_equal(factory->engine.stats.failures_total, 2);
    assert_int_equal(factory->begun, 2);
    turn_until(factory, &factory->begun, 4); /* and goes on */
    factory_free(factory);
}

static void test_the_dead_are_found_in_the_pool_only(void **state)
{
    (void)state;
    struct factory *factory = factory_new(&pool_of_two);
    turn_until(factory, &factory->begun, 2);
    struct sandbox *taken = finish(factory, &small), *pooled = finish(factory, &small);
    struct caller one = { 0 };
    start(factory, &one, &small);
    turn(factory);
    assert_ptr_equal(one.got, taken);
    assert_false(broker_lost(factory->broker, taken));
    assert_true(broker_lost(factory->broker, pooled));
    assert_int_equal(factory->engine.stats.pool_ready, 0);
    factory_free(factory);
}

static void test_after_the_end_everybody_hears_why(void **state)
{
    (void)state;
    struct factory *factory = factory_new(&pool_of_two);
    turn_until(factory, &factory->begun, 2);
    (void)finish(factory, &small);
    struct caller before = { 0 }, after = { 0 };
    start(factory, &before, &large);
    struct err err;
    err_set(&err, EPIPE, "gone");
    broker_shut(factory->broker, &err);
    start(factory, &after, &small);
    turn(factory);
    assert_string_equal(before.why.msg, "gone");
    assert_string_equal(after.why.msg, "gone");
    assert_int_equal(factory->discarded, 1);
    factory_free(factory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sandbox_goes_to_the_first_who_waits_for_its_plan),
        cmocka_unit_test(test_no_more_are_made_at_once_than_allowed),
        cmocka_unit_test(test_who_gives_up_leaves_his_to_the_next),
        cmocka_unit_test(test_one_that_was_cancelled_after_it_was_made_is_discarded),
        cmocka_unit_test(test_the_pool_is_filled_used_and_filled_again),
        cmocka_unit_test(test_who_comes_at_once_is_served_before_successors_are_made),
        cmocka_unit_test(test_who_finds_none_does_not_wait_for_the_end_of_a_rush),
        cmocka_unit_test(
            test_those_at_rest_are_discarded_after_the_rush_and_before_others_are_made),
        cmocka_unit_test(test_without_a_rush_nobody_rests),
        cmocka_unit_test(test_no_more_rest_than_have_been_taken_from_the_pool),
        cmocka_unit_test(test_those_at_rest_make_room_when_there_is_none),
        cmocka_unit_test(test_one_that_dies_at_rest_is_let_go),
        cmocka_unit_test(test_nobody_rests_beyond_the_end),
        cmocka_unit_test(test_what_grew_old_in_the_pool_is_made_anew),
        cmocka_unit_test(test_a_full_house_refuses_and_a_busy_one_waits),
        cmocka_unit_test(test_a_failure_is_told_to_the_first_who_waits_and_the_pool_pauses),
        cmocka_unit_test(test_the_dead_are_found_in_the_pool_only),
        cmocka_unit_test(test_after_the_end_everybody_hears_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
