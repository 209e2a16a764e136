#include "agent/feed.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void feed_init(struct feed *feed)
{
    feed->open = false;
    feed->fd = -1;
    feed->ready = 0;
    feed->left = 0;
    feed->ask = feed->full = false;
    feed->at = feed->len = 0;
}

void feed_begin(struct feed *feed, uint64_t total)
{
    feed_init(feed);
    feed->open = total > 0;
    feed->left = total;
}

void feed_connect(struct feed *feed, int fd)
{
    if (feed->open && fd >= 0)
        feed->fd = fd;
    else
        feed_end(feed);
}

void feed_end(struct feed *feed)
{
    if (feed->fd >= 0)
        close(feed->fd);
    feed_init(feed);
}

int feed_take(struct feed *feed, const char *bytes, size_t len)
{
    if (!feed->open)
        return 0; /* the reader went away while this was under way */
    if (feed->len || feed->ask || !len || len > feed->left)
        return -EPROTO;
    memcpy(feed->buf, bytes, len);
    feed->at = 0;
    feed->len = len;
    feed->left -= len;
    feed->full = len == sizeof(feed->buf);
    return 0;
}

void feed_poll(struct feed *feed, struct pollset *set)
{
    /* Nothing to write, nothing to wait for: that the reader is gone shows in the next write. */
    pollset_add(set, feed->fd, feed->len ? POLLOUT : 0, &feed->ready);
}

void feed_push(struct feed *feed)
{
    if (feed->fd < 0 || !feed->len)
        return;
    ssize_t n = write(feed->fd, feed->buf + feed->at, feed->len - feed->at);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        feed_end(feed);
        return;
    }
    if (n > 0)
        feed->at += (size_t)n;
    if (feed->at < feed->len)
        return;
    feed->at = feed->len = 0;
    feed->ask = feed->left > 0;
    if (!feed->left)
        feed_end(feed);
}

void feed_ask(struct feed *feed, struct wire *wire, uint8_t more_type, uint32_t number)
{
    if (feed->ask && wire_say(wire, more_type, number, NULL, 0))
        feed->ask = false;
}

void feed_step(struct feed *feed, struct wire *wire, uint8_t more_type, uint32_t number)
{
    feed_push(feed);
    feed_ask(feed, wire, more_type, number);
}
