/* What packages.c (who waits for what, the shelf's sets) and job.c (one install) share. */
#ifndef BELLJAR_PACKAGES_PRIVATE_H
#define BELLJAR_PACKAGES_PRIVATE_H

#include "base/buf.h"
#include "base/list.h"
#include "base/loop.h"
#include "packages/packages.h"
#include "packages/shelf.h"
#include "packages/unpack.h"

struct packages {
    uv_loop_t *loop;
    struct packages_options options;
    struct engine *guests, *installers;
    struct shelf shelf;
    char *sets_path, *copies_path;
    char id[SHELF_NAME_SIZE];
    struct list jobs;  /* under way, then those that wait; in the order of arrival */
    struct list sets;  /* struct package_set: held by us */
    struct list waits; /* struct package_wait that wait for no job */
    size_t n_jobs, n_running;
    size_t users; /* jobs and sets that refer to this, and its owner */
    bool closed;
    struct package_stats stats; /* what is counted */
};

/* The owner's, or a job's or a set's, last reference frees it. */
void packages_unref(struct packages *packages);

struct package_set {
    struct list link; /* packages->sets */
    struct packages *packages;
    size_t refs;
    int hold; /* from shelf_hold() */
    char name[SHELF_NAME_SIZE];
    char *path; /* NULL: guests do not see it yet */
};

/* Takes `hold`. With one reference. */
struct package_set *package_set_new(struct packages *packages, const char *name, int hold);
struct package_set *package_set_ref(struct package_set *set);
/* NULL `shown`: by its name. */
void package_set_shown_at(struct package_set *set, const char *shown);

struct package_wait {
    struct list link; /* job->waits, or packages->waits */
    struct package_job *job;
    struct package_events events;
    void *data;
    struct timer *later;            /* of one that is served from the shelf */
    struct package_set *set;        /* the same */
    struct engine_showing *showing; /* the same, until guests see it */
    struct err failure;             /* the same; code 0: none */
};

/*** job.c ***/

struct package_job {
    struct list link; /* packages->jobs */
    struct list waits;
    struct packages *packages;
    char name[SHELF_NAME_SIZE];
    char **requirements;
    size_t n_requirements;
    bool running, over;

    struct timer *clock;  /* its time limit */
    struct timer *settle; /* the end is told from the loop, not from inside what brought it about */
    struct engine_pending *pending;
    struct sandbox *sandbox;
    struct link *agent;
    struct buf output; /* its end */
    struct buf spec;

    struct shelf_stage stage;
    struct unpack unpack;
    uint64_t offset; /* of the result that has been fetched */
    uv_work_t work;
    bool working;
    struct buf piece;

    struct err failure; /* code 0: none */
    struct package_set *set;
    struct engine_showing *showing; /* it is there, and guests are to see it */
    int hold;
};

struct package_job *job_new(struct packages *packages, const char *name, char **requirements,
                            size_t n);
void job_start(struct package_job *job);
/* Ends it, whatever it is at; nobody is told. */
void job_abort(struct package_job *job);

/* packages.c: a job is over, well or badly; tells who waits, starts the next. Frees it. */
void packages_job_over(struct package_job *job);

#endif
