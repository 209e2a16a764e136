/* What the connections of a server share: the clock, the list, and work put off to the loop. */
#include "http/conn.h"

#include <stdlib.h>
#include <time.h>

static void on_idle(uv_idle_t *idle)
{
    struct conns *conns = container_of(idle, struct conns, idle);
    struct conn_queue now = TAILQ_HEAD_INITIALIZER(now);
    TAILQ_CONCAT(&now, &conns->deferred, deferred_link);
    (void)uv_idle_stop(idle); /* documented never to fail */

    /* Callbacks may put more off, even the same connection: that is for the next turn. */
    while (!TAILQ_EMPTY(&now)) {
        struct conn *conn = TAILQ_FIRST(&now);
        TAILQ_REMOVE(&now, conn, deferred_link);
        conn->deferred = false;
        conn_input(conn, NULL, 0);
    }
}

void conn_defer(struct conn *conn)
{
    struct conns *conns = conn->conns;
    if (conn->deferred || conn->phase == PHASE_CLOSED)
        return;
    conn->deferred = true;
    TAILQ_INSERT_TAIL(&conns->deferred, conn, deferred_link);
    (void)uv_idle_start(&conns->idle, on_idle); /* fails without callback only */
}

void conns_init(struct conns *conns)
{
    LIST_INIT(&conns->all);
    TAILQ_INIT(&conns->deferred);
    conns->peers = peers_new();
    conns->scratch = xmalloc(sizeof(*conns->scratch));
    conns->head = BUF_INIT(BUF_NO_CEILING);
    (void)uv_idle_init(conns->loop, &conns->idle); /* documented never to fail */
}

void conns_done(struct conns *conns)
{
    peers_free(conns->peers);
    free(conns->scratch);
    buf_done(&conns->head);
    tls_identity_free(conns->identity);
}

void conns_sweep(struct conns *conns)
{
    uint64_t now = uv_now(conns->loop);
    struct conn *conn;
    LIST_FOREACH(conn, &conns->all, link) /* entries leave from the loop only, not under our feet */
    conn_check_time(conn, now);
}

const char *conns_date(struct conns *conns)
{
    time_t now = time(NULL);
    if (now != conns->date_time) {
        struct tm utc;
        conns->date_time = now;
        /* Names of days and months are English as long as nobody calls setlocale(). */
        if (!gmtime_r(&now, &utc) ||
            !strftime(conns->date, sizeof(conns->date), "%a, %d %b %Y %H:%M:%S GMT", &utc))
            conns->date[0] = '\0';
    }
    return conns->date;
}
