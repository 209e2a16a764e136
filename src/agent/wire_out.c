/* What goes out over a wire, until it is written. Apart from wire.c because the server has a use for it
 * (link_direct.c), where other things are called by some of the names there. */
#include "agent/wire.h"

#include <string.h>

size_t wire_room(struct wire *wire)
{
    if (wire->out_at == wire->out_len)
        wire->out_at = wire->out_len = 0;
    if (sizeof(wire->out) - wire->out_len < FRAME_MAX && wire->out_at > 0) {
        memmove(wire->out, wire->out + wire->out_at, wire->out_len - wire->out_at);
        wire->out_len -= wire->out_at;
        wire->out_at = 0;
    }
    size_t room = sizeof(wire->out) - wire->out_len;
    room = room > FRAME_HEADER ? room - FRAME_HEADER : 0;
    return room < FRAME_PAYLOAD_MAX ? room : FRAME_PAYLOAD_MAX;
}

char *wire_payload(struct wire *wire)
{
    return wire->out + wire->out_len + FRAME_HEADER;
}

void wire_commit(struct wire *wire, uint8_t type, uint32_t number, size_t len)
{
    frame_put_header(wire->out + wire->out_len, type, number, len);
    wire->out_len += FRAME_HEADER + len;
}

bool wire_say(struct wire *wire, uint8_t type, uint32_t number, const char *payload, size_t len)
{
    size_t room = wire_room(wire);
    /* Room 0 may mean less than a header. */
    if (room == 0 || room < len) {
        wire->starved = true;
        return false;
    }
    if (len)
        memcpy(wire_payload(wire), payload, len);
    wire_commit(wire, type, number, len);
    return true;
}
