#include "check.h"

#include "base/loop.h"

#include <stdlib.h>

/* An object that owns a timer, as a connection does. */
struct owner {
    struct timer *timer;
    int *fired;
    int free_at;    /* frees itself when *fired reaches this */
    int restart_to; /* starts the timer again below this */
};

static void owner_free(struct owner *owner)
{
    timer_free(owner->timer);
    free(owner);
}

static void owner_due(void *data)
{
    struct owner *owner = data;
    int fired = ++*owner->fired;
    if (fired == owner->free_at)
        owner_free(owner);
    else if (fired < owner->restart_to)
        timer_start(owner->timer, 1);
}

static struct owner *owner_new(uv_loop_t *loop, int *fired)
{
    struct owner *owner = xcalloc(1, sizeof(*owner));
    owner->timer = timer_new(loop, owner_due, owner);
    owner->fired = fired;
    return owner;
}

static void test_a_timer_fires_once_and_not_early(void **state)
{
    (void)state;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    int fired = 0;
    struct owner *owner = owner_new(&loop, &fired);
    assert_false(timer_active(owner->timer));
    uint64_t start = clock_ms();
    timer_start(owner->timer, 20);
    assert_true(timer_active(owner->timer));
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(fired, 1);
    assert_true(clock_ms() - start >= 19); /* the two clocks round each their own way */
    assert_false(timer_active(owner->timer));
    owner_free(owner);
    loop_finish(&loop);
}

static void test_a_callback_may_free_its_timer_and_its_owner(void **state)
{
    (void)state;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    int fired = 0;
    struct owner *owner = owner_new(&loop, &fired);
    owner->free_at = 3;
    timer_repeat(owner->timer, 1);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(fired, 3);
    loop_finish(&loop);
}

static void test_a_callback_may_start_its_timer_again(void **state)
{
    (void)state;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    int fired = 0;
    struct owner *owner = owner_new(&loop, &fired);
    owner->restart_to = 4;
    timer_start(owner->timer, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(fired, 4);
    owner_free(owner);
    loop_finish(&loop);
}

static void test_a_stopped_or_freed_timer_never_fires(void **state)
{
    (void)state;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    int fired = 0;
    struct owner *stopped = owner_new(&loop, &fired);
    struct owner *freed = owner_new(&loop, &fired);
    timer_start(stopped->timer, 0);
    timer_start(freed->timer, 0);
    timer_stop(stopped->timer);
    owner_free(freed);
    timer_free(NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(fired, 0);
    owner_free(stopped);
    loop_finish(&loop);
}

static void test_a_later_start_replaces_the_earlier(void **state)
{
    (void)state;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    int fired = 0;
    struct owner *owner = owner_new(&loop, &fired);
    timer_repeat(owner->timer, 100000);
    timer_start(owner->timer, 1);
    uv_run(&loop, UV_RUN_DEFAULT); /* would not end with the repeating one */
    assert_int_equal(fired, 1);
    owner_free(owner);
    loop_finish(&loop);
}

static void test_a_timer_may_outlive_its_loop(void **state)
{
    (void)state;
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    int fired = 0;
    struct owner *owner = owner_new(&loop, &fired);
    timer_repeat(owner->timer, 1);
    loop_finish(&loop);
    assert_int_equal(fired, 0);
    owner_free(owner);
}

/*** Looks ***/

enum { LOOK_US = 20000 }; /* more than it takes to ask and to answer at once */

struct looks {
    uv_loop_t loop;
    struct look *look;
};

static void looks_open(struct looks *looks, uint64_t longest_us)
{
    assert_int_equal(uv_loop_init(&looks->loop), 0);
    looks->look = look_new(&looks->loop, longest_us);
}

static void looks_close(struct looks *looks)
{
    look_free(looks->look);
    look_free(NULL);
    loop_finish(&looks->loop);
}

/* Does the loop go round without sleeping? */
static bool is_awake(const struct looks *looks)
{
    return uv_loop_alive(&looks->loop) && uv_backend_timeout(&looks->loop) == 0;
}

/* Whether a question and its answer at once were looked for. */
static bool answer_at_once(struct looks *looks, struct look_pace *pace)
{
    look_ask(looks->look, pace);
    bool awake = is_awake(looks);
    look_answered(looks->look, pace);
    assert_false(is_awake(looks));
    return awake;
}

/* So many quick answers it took until the first that was looked for. */
static unsigned count_until_look(struct looks *looks, struct look_pace *pace)
{
    for (unsigned count = 0; count <= 2 * LOOK_NEEDS_MAX; count++)
        if (answer_at_once(looks, pace))
            return count;
    FAIL("no look after %d quick answers", 2 * LOOK_NEEDS_MAX);
    return 0;
}

/* Asks, and runs the loop, which ends when it has nothing to wait for. */
static void look_in_vain(struct looks *looks, struct look_pace *pace)
{
    look_ask(looks->look, pace);
    assert_true(is_awake(looks));
    uint64_t start = uv_hrtime();
    uv_run(&looks->loop, UV_RUN_DEFAULT);
    assert_true(uv_hrtime() - start >= LOOK_US * 1000 / 2); /* it has begun a little earlier */
    look_answered(looks->look, pace);
}

static void test_only_after_quick_answers_the_next_is_looked_for(void **state)
{
    (void)state;
    struct looks looks;
    struct look_pace pace = { 0 }, other = { 0 };
    looks_open(&looks, LOOK_US);
    look_answered(looks.look, &pace); /* nobody has asked */
    assert_int_equal(count_until_look(&looks, &pace), LOOK_NEEDS_MIN);
    assert_true(answer_at_once(&looks, &pace));
    assert_false(answer_at_once(&looks, &other)); /* each has a pace of his own */
    looks_close(&looks);
}

static void test_a_slow_answer_ends_the_row_of_quick_ones(void **state)
{
    (void)state;
    struct looks looks;
    struct look_pace pace = { 0 };
    looks_open(&looks, /* longest_us= */ 1);
    look_ask(looks.look, &pace);
    for (uint64_t start = uv_hrtime(); uv_hrtime() - start <= 2000 * LOOK_WAKES;)
        ;
    look_answered(looks.look, &pace);
    assert_int_equal(pace.quick, 0);
    looks_close(&looks);
}

static void test_a_look_ends_and_one_in_vain_makes_the_next_rarer(void **state)
{
    (void)state;
    struct looks looks;
    struct look_pace pace = { 0 };
    looks_open(&looks, LOOK_US);
    for (unsigned needs = LOOK_NEEDS_MIN; needs <= 8; needs *= 2) {
        assert_int_equal(count_until_look(&looks, &pace), needs);
        look_in_vain(&looks, &pace);
    }
    pace.needs = LOOK_NEEDS_MAX;
    (void)count_until_look(&looks, &pace);
    look_in_vain(&looks, &pace);
    assert_int_equal(pace.needs, LOOK_NEEDS_MAX);
    looks_close(&looks);
}

static void test_good_looks_make_up_for_one_in_vain(void **state)
{
    (void)state;
    struct looks looks;
    struct look_pace pace = { 0 };
    looks_open(&looks, LOOK_US);
    (void)count_until_look(&looks, &pace);
    look_in_vain(&looks, &pace);
    (void)count_until_look(&looks, &pace);
    assert_int_equal(pace.needs, 2 * LOOK_NEEDS_MIN);
    for (unsigned i = 0; i < LOOK_FORGIVES; i++)
        assert_true(answer_at_once(&looks, &pace));
    assert_int_equal(pace.needs, LOOK_NEEDS_MIN);
    looks_close(&looks);
}

static void test_nobody_is_looked_for_while_others_are_asked(void **state)
{
    (void)state;
    struct looks looks;
    struct look_pace pace = { 0 }, other = { 0 };
    looks_open(&looks, LOOK_US);
    (void)count_until_look(&looks, &pace);
    look_ask(looks.look, &pace);
    assert_true(is_awake(&looks));
    look_ask(looks.look, &other);
    assert_false(is_awake(&looks));
    look_answered(looks.look, &other);
    look_answered(looks.look, &pace);
    assert_true(answer_at_once(&looks, &pace)); /* that was no look in vain */
    looks_close(&looks);
}

static void test_looks_can_be_switched_off(void **state)
{
    (void)state;
    struct looks looks;
    struct look_pace pace = { 0 };
    looks_open(&looks, /* longest_us= */ 0);
    for (int i = 0; i < 100; i++)
        assert_false(answer_at_once(&looks, &pace));
    looks_close(&looks);
}

/* A handle whose close callback frees the object that also owns a timer. */
struct connection {
    uv_async_t handle;
    struct owner *owner;
};

static void connection_closed(uv_handle_t *handle)
{
    struct connection *connection = container_of(handle, struct connection, handle);
    owner_free(connection->owner);
    free(connection);
}

static void test_a_close_callback_may_free_a_timer_while_the_loop_finishes(void **state)
{
    (void)state;
    for (int timer_first = 0; timer_first < 2; timer_first++) {
        uv_loop_t loop;
        assert_int_equal(uv_loop_init(&loop), 0);
        int fired = 0;
        struct connection *connection = xcalloc(1, sizeof(*connection));
        if (timer_first)
            connection->owner = owner_new(&loop, &fired);
        assert_int_equal(uv_async_init(&loop, &connection->handle, NULL), 0);
        if (!timer_first)
            connection->owner = owner_new(&loop, &fired);
        uv_close((uv_handle_t *)&connection->handle, connection_closed);
        loop_finish(&loop);
        assert_int_equal(fired, 0);
    }
}

/* Work of another thread whose end frees the owner of a timer. */
struct job {
    uv_work_t work;
    uv_sem_t done;
    struct owner *owner;
};

static void job_run(uv_work_t *work)
{
    uv_sem_post(&container_of(work, struct job, work)->done);
}

static void job_over(uv_work_t *work, int status)
{
    (void)status;
    owner_free(container_of(work, struct job, work)->owner);
}

static void test_a_callback_may_free_a_timer_that_the_loop_is_closing(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct job job;
    int fired = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_sem_init(&job.done, 0), 0);
    job.owner = owner_new(&loop, &fired);
    assert_int_equal(uv_queue_work(&loop, &job.work, job_run, job_over), 0);
    uv_sem_wait(&job.done);
    uv_sleep(20); /* for the thread to report back; sooner or later, all must be well */
    loop_finish(&loop);
    uv_sem_destroy(&job.done);
    assert_int_equal(fired, 0);
}

static void test_the_clock_moves_forward(void **state)
{
    (void)state;
    uint64_t before = clock_ms();
    assert_true(before > 0);
    assert_true(clock_ms() >= before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_timer_fires_once_and_not_early),
        cmocka_unit_test(test_a_callback_may_free_its_timer_and_its_owner),
        cmocka_unit_test(test_a_callback_may_start_its_timer_again),
        cmocka_unit_test(test_a_stopped_or_freed_timer_never_fires),
        cmocka_unit_test(test_a_later_start_replaces_the_earlier),
        cmocka_unit_test(test_a_timer_may_outlive_its_loop),
        cmocka_unit_test(test_a_close_callback_may_free_a_timer_while_the_loop_finishes),
        cmocka_unit_test(test_a_callback_may_free_a_timer_that_the_loop_is_closing),
        cmocka_unit_test(test_only_after_quick_answers_the_next_is_looked_for),
        cmocka_unit_test(test_a_slow_answer_ends_the_row_of_quick_ones),
        cmocka_unit_test(test_a_look_ends_and_one_in_vain_makes_the_next_rarer),
        cmocka_unit_test(test_good_looks_make_up_for_one_in_vain),
        cmocka_unit_test(test_nobody_is_looked_for_while_others_are_asked),
        cmocka_unit_test(test_looks_can_be_switched_off),
        cmocka_unit_test(test_the_clock_moves_forward),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
