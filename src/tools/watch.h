/*
 * watch: tells clients that files of their sessions came, changed or went. After a run, and after a
 * tool that writes, the session's files are listed and compared with how they were, but only while
 * a client of the session's owner follows resources (mcp_server_watched()); otherwise nothing is
 * looked at, and what a run itself reports is passed on.
 *
 *   1. watch_new()          over all sessions
 *   2. watch_add_server()   each server whose clients shall hear
 *   3. watch_free()         after the sessions, before the servers
 */
#ifndef BELLJAR_TOOLS_WATCH_H
#define BELLJAR_TOOLS_WATCH_H

#include "mcp/mcp.h"
#include "session/session.h"

struct watch;

/* `max_files`: of a session that are remembered. */
struct watch *watch_new(struct sessions *sessions, size_t max_files);
void watch_free(struct watch *watch); /* NULL is fine */
void watch_add_server(struct watch *watch, struct mcp_server *server);

/* A tool begins to change files of this session, and has done or given up. */
void watch_begin_change(struct watch *watch, const char *owner, const char *session_id);
void watch_end_change(struct watch *watch, const char *owner, const char *session_id);

#endif
